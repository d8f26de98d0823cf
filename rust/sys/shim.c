// SPDX-License-Identifier: GPL-2.0-only
/* Wrappers of macros and inline functions of the kernel. */

#include <linux/bio-integrity.h>
#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/blk-crypto.h>
#include <linux/blkdev.h>
#include <linux/cgroup.h>
#include <linux/debugfs.h>
#include <linux/device-mapper.h>
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/kernfs.h>
#include <linux/kthread.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#if IS_ENABLED(CONFIG_SUNRPC)
#include <linux/sunrpc/svc.h>
#endif
#include <linux/topology.h>
#include <linux/utsname.h>

#include "events.h"
#include "shim.h"

void nrs_bio_set_dev(struct bio *bio, struct block_device *bdev)
{
	bio_set_dev(bio, bdev);
}

bool nrs_bio_split(struct bio *bio, unsigned int bytes)
{
	struct bio_crypt_ctx *crypt = bio_crypt_ctx(bio);

	bytes = min(bytes, queue_max_bytes(bdev_get_queue(bio->bi_bdev)));
	if (crypt)
		bytes = round_down(bytes, crypt->bc_key->crypto_cfg.data_unit_size);
	if (!bytes || bytes >= bio->bi_iter.bi_size)
		return false;
	dm_accept_partial_bio(bio, bytes >> SECTOR_SHIFT);
	if (bio_integrity(bio))
		bio_integrity_trim(bio);
	return true;
}

bool nrs_sizes_are(size_t dm_target, size_t target_type, size_t event)
{
	return dm_target == sizeof(struct dm_target) && target_type == sizeof(struct target_type) &&
	       event == sizeof(struct nrs_event_enqueue);
}

bool nrs_bio_file(struct bio *bio, u64 *file, u64 *offset)
{
	struct address_space *mapping;
	struct bio_vec first;
	struct folio *folio;
	bool known = false;

	if (!bio_has_data(bio))
		return false;
	first = bio_iter_iovec(bio, bio->bi_iter);
	folio = page_folio(first.bv_page);
	/* Pages of slabs and drivers use the field `mapping` for other data. */
	if (page_has_type(&folio->page) || folio_test_anon(folio) || folio_test_swapcache(folio))
		return false;
	/*
	 * A page stays in its file while it is locked or written back; inodes are freed after a grace
	 * period.
	 */
	rcu_read_lock();
	mapping = READ_ONCE(folio->mapping);
	if (mapping && (folio_test_locked(folio) || folio_test_writeback(folio))) {
		*file = mapping->host->i_ino;
		*offset = page_offset(first.bv_page) + first.bv_offset;
		known = true;
	}
	rcu_read_unlock();
	return known;
}

void nrs_bio_end(struct bio *bio, int error)
{
	bio->bi_status = errno_to_blk_status(error);
	bio_endio(bio);
}

bool nrs_in_interrupt(void)
{
	return in_interrupt();
}

struct device *nrs_md_disk(struct mapped_device *md)
{
	return get_device(disk_to_dev(dm_disk(md)));
}

void nrs_disk_changed(struct device *disk, char **words)
{
	/* If the allocation fails, listeners can still read the counters. */
	kobject_uevent_env(&disk->kobj, KOBJ_CHANGE, words);
}

unsigned int nrs_bdev_depth(struct block_device *bdev)
{
	struct request_queue *q = bdev_get_queue(bdev);

	return queue_is_mq(q) ? q->nr_requests : 0;
}

dev_t nrs_bdev_disk(struct block_device *bdev)
{
	return bdev_whole(bdev)->bd_dev;
}

bool nrs_bdev_is_zoned(struct block_device *bdev)
{
	return bdev_is_zoned(bdev);
}

unsigned int nrs_nfs_client(u8 *address)
{
#if IS_ENABLED(CONFIG_SUNRPC)
	const struct svc_rqst *request;
	const struct sockaddr *from;

	/* Only the kernel names its threads. A thread that exits has freed its request. */
	if (!(current->flags & PF_KTHREAD) || (current->flags & PF_EXITING) ||
	    strcmp(current->comm, "nfsd"))
		return 0;
	request = kthread_data(current);
	if (!request || request->rq_task != current)
		return 0;
	from = svc_addr(request);
	if (from->sa_family == AF_INET) {
		memcpy(address, &svc_addr_in(request)->sin_addr, 4);
		return 4;
	}
	if (from->sa_family == AF_INET6) {
		memcpy(address, &svc_addr_in6(request)->sin6_addr, 16);
		return 16;
	}
#endif
	return 0;
}

bool nrs_can_hold_back(void)
{
	const unsigned int bound = PF_MEMALLOC | PF_MEMALLOC_NOFS | PF_MEMALLOC_NOIO;
	const struct bio_list *bios = current->bio_list;

	/*
	 * File systems keep their transaction handle in journal_info. Bios of the list may hold all
	 * slots.
	 */
	return !(current->flags & bound) && !current->journal_info &&
	       (!bios || (bio_list_empty(&bios[0]) && bio_list_empty(&bios[1])));
}

/*
 * Returns the cgroup of @bio if it is on the unified hierarchy, below the root. @bio has a
 * reference.
 */
static struct cgroup *nrs_cgroup_of(struct bio *bio)
{
#ifdef CONFIG_BLK_CGROUP
	struct cgroup_subsys_state *css = bio_blkcg_css(bio);

	if (css && css->parent && css->cgroup->root == &cgrp_dfl_root)
		return css->cgroup;
#endif
	return NULL;
}

/*
 * Returns the cgroup of the running task, unless it is a kernel thread, or @bio is charged to a
 * cgroup that the task is not in: then the cgroup of @bio, if it is not NULL, as above. The caller
 * is in a read-side critical section of RCU.
 */
static struct cgroup *nrs_cgroup_of_request(struct bio *bio)
{
	struct cgroup *charged = bio ? nrs_cgroup_of(bio) : NULL;
#ifdef CONFIG_CGROUPS
	struct cgroup *own;

	if (!(current->flags & PF_KTHREAD)) {
		own = task_dfl_cgroup(current);
		if (!charged || cgroup_is_descendant(own, charged))
			return own;
	}
#endif
	return charged;
}

u64 nrs_cgroup(struct bio *bio)
{
	struct cgroup *cgroup;
	u64 id;

	rcu_read_lock();
	cgroup = nrs_cgroup_of_request(bio);
	id = cgroup ? cgroup_id(cgroup) : 0;
	rcu_read_unlock();
	return id;
}

u64 nrs_charged_cgroup(struct bio *bio)
{
	struct cgroup *cgroup = bio ? nrs_cgroup_of(bio) : NULL;

	return cgroup ? cgroup_id(cgroup) : nrs_cgroup(NULL);
}

int nrs_cgroup_name(struct bio *bio, int level, char *buf, size_t len)
{
	struct cgroup *cgroup;
	int ret = -ENODATA;

	rcu_read_lock();
	cgroup = nrs_cgroup_of_request(bio);
#ifdef CONFIG_CGROUPS
	if (cgroup && level)
		cgroup = cgroup_ancestor(cgroup, level);
	if (cgroup)
		ret = strscpy(buf, rcu_dereference(cgroup->kn->name), len);
#endif
	rcu_read_unlock();
	return ret;
}

bool nrs_bio_is_foreign(struct bio *bio)
{
	struct cgroup *cgroup = nrs_cgroup_of(bio);
	bool foreign = false;

	if (cgroup) {
		rcu_read_lock();
		foreign = !cgroup_is_descendant(task_dfl_cgroup(current), cgroup);
		rcu_read_unlock();
	}
	return foreign;
}

int nrs_hostname(char *buf, size_t len)
{
	/* An exiting task drops its namespaces before the last references to its files. */
	struct new_utsname *name = current->nsproxy ? utsname() : init_utsname();

	/* The name may change meanwhile; it is always NUL-terminated. */
	return strscpy(buf, name->nodename, len);
}

int nrs_debugfs_get(struct file *file)
{
	return debugfs_file_get(file->f_path.dentry);
}

void nrs_debugfs_put(struct file *file)
{
	debugfs_file_put(file->f_path.dentry);
}

unsigned int nrs_noio_save(void)
{
	return memalloc_noio_save();
}

void nrs_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

void nrs_cond_resched(void)
{
	cond_resched();
}

int nrs_cpu_to_node(unsigned int cpu)
{
	/* Impossible CPUs have no per-CPU variables. */
	return cpu_possible(cpu) ? cpu_to_node(cpu) : 0;
}

bool nrs_ratelimit(void)
{
	static DEFINE_RATELIMIT_STATE(state, 5 * HZ, 10);

	return __ratelimit(&state);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
/*
 * Locks held by this CPU, and its interrupt flags before the first. Used with interrupts disabled.
 */
static DEFINE_PER_CPU(unsigned int, nrs_irq_depth);
static DEFINE_PER_CPU(unsigned long, nrs_irq_flags);

static void nrs_irq_disable(void)
{
	unsigned long flags;

	/* A lock of a real-time kernel sleeps, and interrupts that take locks run in threads. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return;
	local_irq_save(flags);
	if (!__this_cpu_read(nrs_irq_depth))
		__this_cpu_write(nrs_irq_flags, flags);
	__this_cpu_inc(nrs_irq_depth);
}

static void nrs_irq_enable(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT) && !__this_cpu_dec_return(nrs_irq_depth))
		local_irq_restore(__this_cpu_read(nrs_irq_flags));
}

void nrs_irq_lock(spinlock_t *lock)
{
	nrs_irq_disable();
	spin_lock(lock);
}

bool nrs_irq_try_lock(spinlock_t *lock)
{
	bool locked;

	nrs_irq_disable();
	locked = spin_trylock(lock);
	if (!locked)
		nrs_irq_enable();
	return locked;
}

void nrs_irq_unlock(spinlock_t *lock)
{
	/* With preemption disabled, a task woken under the lock runs once interrupts are enabled. */
	preempt_disable();
	spin_unlock(lock);
	nrs_irq_enable();
	preempt_enable();
}
#endif
