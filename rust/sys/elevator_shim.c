// SPDX-License-Identifier: GPL-2.0-only
/* Wrappers of macros and inline functions for I/O schedulers. */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/part_stat.h>
#include <linux/percpu-refcount.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <trace/events/block.h>

#include "block/blk-cgroup.h"
#include "block/blk-mq.h"
#include "block/blk-rq-qos.h"
#include "block/blk-wbt.h"
#include "elevator_shim.h"

struct device *nrs_queue_disk(struct request_queue *q)
{
	return q->disk ? get_device(disk_to_dev(q->disk)) : NULL;
}

bool nrs_queue_is_dying(struct request_queue *q)
{
	return percpu_ref_is_dying(&q->q_usage_counter);
}

void nrs_queue_throttle_writeback(struct request_queue *q, bool throttle)
{
	if (throttle) {
		blk_queue_flag_clear(QUEUE_FLAG_DISABLE_WBT_DEF, q);
		wbt_enable_default(q->disk);
	} else {
		blk_queue_flag_set(QUEUE_FLAG_DISABLE_WBT_DEF, q);
		wbt_disable_default(q->disk);
	}
}

unsigned int nrs_request_cpu(struct request *rq)
{
	return rq->mq_ctx->cpu;
}

bool nrs_cpu_is_active(unsigned int cpu)
{
	return cpu_active(cpu);
}

void nrs_queue_enter(struct request_queue *q)
{
	percpu_ref_get(&q->q_usage_counter);
}

void nrs_queue_leave(struct request_queue *q)
{
	percpu_ref_put(&q->q_usage_counter);
}

void nrs_wait_for_tasks(void)
{
	synchronize_rcu_tasks();
}

struct request *nrs_request_pop(struct list_head *list)
{
	struct request *rq = list_first_entry_or_null(list, struct request, queuelist);

	if (rq)
		list_del_init(&rq->queuelist);
	return rq;
}

void nrs_request_trace(struct request *rq)
{
	trace_block_rq_insert(rq);
}

bool nrs_request_is_in_flush(struct request *rq)
{
	return rq->rq_flags & RQF_FLUSH_SEQ;
}

bool nrs_request_is_piece(struct request *rq)
{
	static bio_end_io_t *chained;

	if (!(rq->cmd_flags & REQ_NOMERGE))
		return false;
	if (unlikely(!READ_ONCE(chained))) {
		struct bio piece, rest;

		bio_init(&piece, NULL, NULL, 0, 0);
		bio_init(&rest, NULL, NULL, 0, 0);
		bio_chain(&piece, &rest);
		WRITE_ONCE(chained, piece.bi_end_io);
	}
	return rq->bio->bi_end_io == READ_ONCE(chained);
}

bool nrs_may_sleep(void)
{
	return task_is_running(current) && !rcu_preempt_depth() && !in_atomic();
}

bool nrs_may_run(struct blk_mq_hw_ctx *hctx, bool nowait)
{
	return nrs_may_sleep() && !irqs_disabled() &&
	       !(nowait && hctx->flags & BLK_MQ_F_BLOCKING);
}

void nrs_bio_detach(struct bio *bio)
{
	bio->bi_opf &= ~(REQ_NOWAIT | REQ_POLLED);
	bio->bi_cookie = BLK_QC_T_NONE;
	/* Its bytes were counted, and throttled by io.max, at its first submission. */
	bio_set_flag(bio, BIO_CGROUP_ACCT);
	bio_set_flag(bio, BIO_BPS_THROTTLED);
}

bool nrs_queue_is_controlled(struct request_queue *q)
{
	const struct rq_qos *qos;

	for (qos = q->rq_qos; qos; qos = qos->next)
		if (qos->id != RQ_QOS_WBT)
			return true;
	return false;
}

bool nrs_request_has_bios_only(struct request *rq)
{
#ifdef CONFIG_BLK_INLINE_ENCRYPTION
	if (rq->crypt_keyslot)
		return false;
#endif
	return !rq->end_io && !nrs_queue_is_controlled(rq->q);
}

struct bio *nrs_request_take_bios(struct request *rq)
{
	struct bio_list bios = BIO_EMPTY_LIST;
	struct bio *bio;

	if (rq->rq_flags & RQF_IO_STAT) {
		part_stat_lock();
		bdev_dec_in_flight(rq->part, req_op(rq));
		part_stat_unlock();
		rq->rq_flags &= ~RQF_IO_STAT;
	}
	__rq_for_each_bio(bio, rq)
		nrs_bio_detach(bio);
	blk_steal_bios(&bios, rq);
	blk_mq_free_request(rq);
	return bios.head;
}

/* Reverts what blk_cgroup_bio_start() counts at each submission of @bio. */
static void nrs_bio_uncount(struct bio *bio)
{
#ifdef CONFIG_BLK_CGROUP
	struct blkg_iostat_set *set;
	unsigned long flags;
	int type = BLKG_IOSTAT_READ;

	if (!bio->bi_blkg || !cgroup_subsys_on_dfl(io_cgrp_subsys) ||
	    !cgroup_parent(bio->bi_blkg->blkcg->css.cgroup))
		return;
	if (op_is_discard(bio->bi_opf))
		type = BLKG_IOSTAT_DISCARD;
	else if (op_is_write(bio->bi_opf))
		type = BLKG_IOSTAT_WRITE;
	set = get_cpu_ptr(bio->bi_blkg->iostat_cpu);
	flags = u64_stats_update_begin_irqsave(&set->sync);
	set->cur.ios[type]--;
	u64_stats_update_end_irqrestore(&set->sync, flags);
	put_cpu_ptr(bio->bi_blkg->iostat_cpu);
#endif
}

unsigned int nrs_bio_join(struct bio *first, struct bio *last, struct bio *next,
			  unsigned int segments)
{
	struct request_queue *q = bdev_get_queue(first->bi_bdev);
	sector_t begin = first->bi_iter.bi_sector, end = bio_end_sector(next);

	if (last->bi_next || next->bi_next || next->bi_bdev != first->bi_bdev ||
	    next->bi_opf != first->bi_opf || next->bi_iter.bi_sector != bio_end_sector(last) ||
	    !bio_has_data(first) || (first->bi_opf & REQ_NOMERGE_FLAGS) ||
	    end - begin > queue_max_sectors(q))
		return 0;
	segments = (segments ?: bio_segments(first)) + bio_segments(next);
	return segments <= queue_max_segments(q) ? segments : 0;
}

void nrs_bios_submit(struct bio *bios)
{
	struct blk_plug plug;
	struct bio *bio;

	blk_start_plug(&plug);
	while ((bio = bios)) {
		bios = bio->bi_next;
		bio->bi_next = NULL;
		nrs_bio_uncount(bio);
		submit_bio_noacct(bio);
	}
	blk_finish_plug(&plug);
}

bool nrs_queue_shares_tags(struct request_queue *q)
{
	return blk_mq_is_shared_tags(q->tag_set->flags);
}

bool nrs_queue_may_regroup(struct request_queue *q)
{
	return mutex_is_locked(&q->tag_set->tag_list_lock);
}
