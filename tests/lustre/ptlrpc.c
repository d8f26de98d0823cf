// SPDX-License-Identifier: GPL-2.0-only
/*
 * A stand-in for ptlrpc: a service "ost_io" with two partitions of two heads, which calls policies
 * in the contexts and the order of ptlrpc. Parameters in /sys/module/ptlrpc/parameters/:
 *
 *   nrs_policies   NAME [reg|hp] [ARGUMENT]
 *   load           COUNT: requests for each partition; the write returns when all are answered
 */

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/random.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>

#include <lustre_net.h>
#include <lustre_req_layout.h>

#define PARTS	2
#define SERVERS	2

struct nrs_core {
	struct mutex nrs_mutex;
	struct list_head nrs_policies;
};

struct nrs_core nrs_core = {
	.nrs_mutex = __MUTEX_INITIALIZER(nrs_core.nrs_mutex),
	.nrs_policies = LIST_HEAD_INIT(nrs_core.nrs_policies),
};

DEFINE_MUTEX(ptlrpc_all_services_mutex);

static struct ptlrpc_service service = { .srv_name = "ost_io", .srv_ncpts = PARTS };
static atomic_t errors, answered, moved, forced;
static unsigned int load_count;
static bool ended;

#define EXPECT(cond)									\
	({										\
		bool holds_ = (cond);							\
											\
		if (!holds_ && atomic_inc_return(&errors) < 20)				\
			pr_err("ptlrpc: line %d: %s\n", __LINE__, #cond);		\
		holds_;									\
	})

/* Messages. */

struct req_msg_field RMF_OST_BODY = { offsetof(struct lustre_msg, body), sizeof(struct ost_body) };
EXPORT_SYMBOL(RMF_OST_BODY);
struct req_msg_field RMF_OBD_IOOBJ = {
	offsetof(struct lustre_msg, object), sizeof(struct obd_ioobj)
};
EXPORT_SYMBOL(RMF_OBD_IOOBJ);
struct req_msg_field RMF_NIOBUF_REMOTE = {
	offsetof(struct lustre_msg, piece), sizeof(struct niobuf_remote)
};
EXPORT_SYMBOL(RMF_NIOBUF_REMOTE);

void *req_capsule_client_get(struct req_capsule *pill, const struct req_msg_field *field)
{
	EXPECT(pill->rc_fmt);
	return (void *)pill->rc_reqmsg + field->offset;
}
EXPORT_SYMBOL(req_capsule_client_get);

u32 req_capsule_get_size(const struct req_capsule *pill, const struct req_msg_field *field,
			 enum req_location where)
{
	return field->size;
}
EXPORT_SYMBOL(req_capsule_get_size);

u32 lustre_msg_get_opc(struct lustre_msg *msg)
{
	return msg->opcode;
}
EXPORT_SYMBOL(lustre_msg_get_opc);

char *lustre_msg_get_jobid(struct lustre_msg *msg)
{
	return msg->jobid;
}
EXPORT_SYMBOL(lustre_msg_get_jobid);

int lustre_msg_get_uid_gid(struct lustre_msg *msg, u32 *uid, u32 *gid)
{
	*uid = msg->uid;
	*gid = msg->gid;
	return 0;
}
EXPORT_SYMBOL(lustre_msg_get_uid_gid);

int lustre_msg_get_projid(struct lustre_msg *msg, u32 *projid)
{
	*projid = msg->projid;
	return 0;
}
EXPORT_SYMBOL(lustre_msg_get_projid);

/* Fallback policy: a queue linked through the requests. */

static struct fifo {
	struct ptlrpc_nrs_resource resource;
	struct list_head queue;
} fifos[PARTS][2];

static struct fifo *fifo_of(struct ptlrpc_nrs_policy *policy)
{
	struct ptlrpc_nrs *nrs = policy->pol_nrs;

	return &fifos[nrs->nrs_svcpt->scp_cpt][nrs->nrs_queue_type == PTLRPC_NRS_QUEUE_HP];
}

static struct ptlrpc_request *request_of(struct ptlrpc_nrs_request *nrq)
{
	return container_of(nrq, struct ptlrpc_request, rq_nrq);
}

static int fifo_res_get(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq,
			const struct ptlrpc_nrs_resource *parent,
			struct ptlrpc_nrs_resource **resp, bool moving)
{
	*resp = &fifo_of(policy)->resource;
	return 1;
}

static struct ptlrpc_nrs_request *fifo_get(struct ptlrpc_nrs_policy *policy, bool peek, bool force)
{
	struct ptlrpc_request *req = list_first_entry_or_null(&fifo_of(policy)->queue,
							      struct ptlrpc_request, fifo);

	if (req && !peek)
		list_del(&req->fifo);
	return req ? &req->rq_nrq : NULL;
}

static int fifo_enqueue(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq)
{
	list_add_tail(&request_of(nrq)->fifo, &fifo_of(policy)->queue);
	return 0;
}

static void fifo_dequeue(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq)
{
	list_del(&request_of(nrq)->fifo);
}

static const struct ptlrpc_nrs_pol_ops fifo_ops = {
	.op_res_get = fifo_res_get,
	.op_req_get = fifo_get,
	.op_req_enqueue = fifo_enqueue,
	.op_req_dequeue = fifo_dequeue,
};

/* Policies of heads. */

static struct ptlrpc_nrs *head_of(unsigned int part, bool hp)
{
	return hp ? &service.srv_parts[part]->scp_nrs_hp : &service.srv_parts[part]->scp_nrs_reg;
}

static void started_get(struct ptlrpc_nrs_policy *policy)
{
	refcount_inc(&policy->pol_start_ref);
}

static void started_put(struct ptlrpc_nrs_policy *policy)
{
	if (!refcount_dec_and_test(&policy->pol_start_ref))
		return;
	policy->pol_desc->pd_ops->op_policy_stop(policy);
	EXPECT(!policy->pol_req_queued && !policy->pol_req_started);
	policy->pol_private = NULL;
	policy->pol_state = NRS_POL_STATE_STOPPED;
	wake_up(&policy->pol_wq);
	if (atomic_dec_and_test(&policy->pol_desc->pd_refs))
		module_put(policy->pol_desc->pd_owner);
}

static struct ptlrpc_nrs_policy *find_policy(struct ptlrpc_nrs *nrs, const char *name)
{
	struct ptlrpc_nrs_policy *policy;

	list_for_each_entry(policy, &nrs->nrs_policy_list, pol_list)
		if (!strcmp(policy->pol_desc->pd_name, name))
			return policy;
	return NULL;
}

/* Replaces the primary policy; the caller must hold the head's lock, which is dropped meanwhile. */
static void replace_primary(struct ptlrpc_nrs *nrs, struct ptlrpc_nrs_policy *policy)
{
	struct ptlrpc_nrs_policy *old = nrs->nrs_policy_primary;

	nrs->nrs_policy_primary = policy;
	if (!old)
		return;
	old->pol_state = NRS_POL_STATE_STOPPING;
	spin_unlock(&nrs->nrs_lock);
	started_put(old);
	spin_lock(&nrs->nrs_lock);
}

static int start(struct ptlrpc_nrs *nrs, const char *name, char *argument)
{
	struct ptlrpc_nrs_policy *policy;
	int error = 0;

	spin_lock(&nrs->nrs_lock);
	policy = find_policy(nrs, name);
	if (!policy) {
		error = -ENOENT;
	} else if (policy == nrs->nrs_policy_fallback) {
		replace_primary(nrs, NULL);
	} else if (policy->pol_state == NRS_POL_STATE_STOPPING) {
		error = -EAGAIN;
	} else if (argument && strlen(argument) >= NRS_POL_ARG_MAX) {
		error = -EINVAL;
	} else {
		if (policy->pol_state == NRS_POL_STATE_STARTED) {
			if (!strcmp(policy->pol_arg, argument ?: ""))
				goto out;
			replace_primary(nrs, NULL);
			spin_unlock(&nrs->nrs_lock);
			wait_event_timeout(policy->pol_wq, policy->pol_state == NRS_POL_STATE_STOPPED, 30 * HZ);
			spin_lock(&nrs->nrs_lock);
			error = policy->pol_state == NRS_POL_STATE_STOPPED ? 0 : -EBUSY;
			if (error)
				goto out;
		}
		if (atomic_inc_return(&policy->pol_desc->pd_refs) == 1 &&
		    !try_module_get(policy->pol_desc->pd_owner)) {
			atomic_dec(&policy->pol_desc->pd_refs);
			error = -ENODEV;
			goto out;
		}
		spin_unlock(&nrs->nrs_lock);
		error = policy->pol_desc->pd_ops->op_policy_start(policy, argument);
		spin_lock(&nrs->nrs_lock);
		if (error) {
			if (atomic_dec_and_test(&policy->pol_desc->pd_refs))
				module_put(policy->pol_desc->pd_owner);
			goto out;
		}
		strscpy(policy->pol_arg, argument ?: "");
		refcount_set(&policy->pol_start_ref, 1);
		policy->pol_state = NRS_POL_STATE_STARTED;
		replace_primary(nrs, policy);
	}
out:
	spin_unlock(&nrs->nrs_lock);
	return error;
}

/* Requests, with two resources each, as in ptlrpc. */

static void get_resources(struct ptlrpc_nrs *nrs, struct ptlrpc_nrs_request *nrq,
			  struct ptlrpc_nrs_resource **resources, bool moving)
{
	struct ptlrpc_nrs_policy *policies[NRS_RES_MAX];
	unsigned int index;

	spin_lock(&nrs->nrs_lock);
	policies[NRS_RES_FALLBACK] = nrs->nrs_policy_fallback;
	policies[NRS_RES_PRIMARY] = nrs->nrs_policy_primary;
	started_get(policies[NRS_RES_FALLBACK]);
	if (policies[NRS_RES_PRIMARY])
		started_get(policies[NRS_RES_PRIMARY]);
	spin_unlock(&nrs->nrs_lock);
	for (index = 0; index < NRS_RES_MAX; index++) {
		struct ptlrpc_nrs_policy *policy = policies[index];

		resources[index] = NULL;
		if (!policy)
			continue;
		if (policy->pol_desc->pd_ops->op_res_get(policy, nrq, NULL, &resources[index],
							 moving) < 0) {
			resources[index] = NULL;
			started_put(policy);
		} else {
			resources[index]->res_parent = NULL;
			resources[index]->res_policy = policy;
		}
	}
}

static void put_resources(struct ptlrpc_nrs_resource **resources)
{
	unsigned int index;

	for (index = 0; index < NRS_RES_MAX; index++) {
		struct ptlrpc_nrs_policy *policy;

		if (!resources[index])
			continue;
		policy = resources[index]->res_policy;
		if (policy->pol_desc->pd_ops->op_res_put)
			policy->pol_desc->pd_ops->op_res_put(policy, resources[index]);
		resources[index] = NULL;
		started_put(policy);
	}
}

static struct ptlrpc_nrs_policy *policy_of(struct ptlrpc_nrs_request *nrq)
{
	return nrq->nr_res_ptrs[nrq->nr_res_idx]->res_policy;
}

/* Queues a request; the caller must hold the partition's lock. */
static void enqueue(struct ptlrpc_nrs_request *nrq)
{
	int index;

	for (index = NRS_RES_MAX - 1; index >= 0; index--) {
		struct ptlrpc_nrs_policy *policy;

		if (!nrq->nr_res_ptrs[index])
			continue;
		nrq->nr_res_idx = index;
		policy = policy_of(nrq);
		if (policy->pol_desc->pd_ops->op_req_enqueue(policy, nrq))
			continue;
		if (!policy->pol_req_queued++)
			list_add_tail(&policy->pol_list_queued, &policy->pol_nrs->nrs_policy_queued);
		policy->pol_nrs->nrs_req_queued++;
		started_get(policy);
		nrq->nr_enqueued = 1;
		return;
	}
	EXPECT(!"no policy accepted the request");
}

static void removed(struct ptlrpc_nrs_policy *policy)
{
	policy->pol_nrs->nrs_req_queued--;
	if (!--policy->pol_req_queued)
		list_del_init(&policy->pol_list_queued);
	else
		list_move_tail(&policy->pol_list_queued, &policy->pol_nrs->nrs_policy_queued);
	started_put(policy);
}

static struct ptlrpc_request *get(struct ptlrpc_nrs *nrs)
{
	struct ptlrpc_nrs_policy *policy;

	list_for_each_entry(policy, &nrs->nrs_policy_queued, pol_list_queued) {
		bool force = policy->pol_state != NRS_POL_STATE_STARTED;
		const struct ptlrpc_nrs_pol_ops *ops = policy->pol_desc->pd_ops;
		struct ptlrpc_nrs_request *nrq;

		EXPECT(ops->op_req_get(policy, true, true));
		nrq = ops->op_req_get(policy, false, force);
		if (!nrq) {
			EXPECT(!force);
			continue;
		}
		EXPECT(policy_of(nrq) == policy && nrq->nr_enqueued && !nrq->nr_started);
		atomic_add(force, &forced);
		nrq->nr_started = 1;
		policy->pol_req_started++;
		nrs->nrs_req_started++;
		removed(policy);
		return request_of(nrq);
	}
	return NULL;
}

/*
 * Moves a queued regular request to the other head, under the lock of the client's connection, as
 * in ptlrpc.
 */
static void move(struct ptlrpc_service_part *part)
{
	struct ptlrpc_nrs_resource *resources[NRS_RES_MAX];
	struct ptlrpc_nrs_request *nrq = NULL;
	struct ptlrpc_request *req;

	spin_lock(&part->rpc_lock);
	list_for_each_entry_reverse(req, &part->live, link) {
		if (ptlrpc_nrs_req_can_move(req)) {
			nrq = &req->rq_nrq;
			break;
		}
	}
	if (!nrq)
		goto out;
	/*
	 * Without the partition's lock, a thread may take the request and release its resources
	 * meanwhile.
	 */
	if (get_random_u32_below(2))
		udelay(20);
	get_resources(&part->scp_nrs_hp, nrq, resources, true);
	spin_lock(&part->scp_req_lock);
	if (ptlrpc_nrs_req_can_move(req)) {
		struct ptlrpc_nrs_policy *policy = policy_of(nrq);
		unsigned int index;

		policy->pol_desc->pd_ops->op_req_dequeue(policy, nrq);
		removed(policy);
		for (index = 0; index < NRS_RES_MAX; index++)
			swap(nrq->nr_res_ptrs[index], resources[index]);
		req->hp = true;
		enqueue(nrq);
		atomic_inc(&moved);
	}
	spin_unlock(&part->scp_req_lock);
	put_resources(resources);
out:
	spin_unlock(&part->rpc_lock);
}

/* Threads. */

static bool may_serve(const struct ptlrpc_nrs *nrs)
{
	return nrs->nrs_req_queued && !nrs->nrs_throttling;
}

static struct ptlrpc_request *get_any(struct ptlrpc_service_part *part)
{
	struct ptlrpc_request *req = NULL;

	spin_lock(&part->scp_req_lock);
	if (may_serve(&part->scp_nrs_hp))
		req = get(&part->scp_nrs_hp);
	if (!req && may_serve(&part->scp_nrs_reg))
		req = get(&part->scp_nrs_reg);
	spin_unlock(&part->scp_req_lock);
	return req;
}

static void finish(struct ptlrpc_service_part *part, struct ptlrpc_request *req)
{
	struct ptlrpc_nrs_policy *policy;

	spin_lock(&part->scp_req_lock);
	policy = policy_of(&req->rq_nrq);
	if (policy->pol_desc->pd_ops->op_req_stop)
		policy->pol_desc->pd_ops->op_req_stop(policy, &req->rq_nrq);
	policy->pol_nrs->nrs_req_started--;
	policy->pol_req_started--;
	spin_unlock(&part->scp_req_lock);
	/* ptlrpc uses this order. */
	put_resources(req->rq_nrq.nr_res_ptrs);
	spin_lock(&part->rpc_lock);
	list_del(&req->link);
	spin_unlock(&part->rpc_lock);
	kfree(req);
	atomic_dec(&part->count);
	atomic_inc(&answered);
	wake_up(&part->room);
}

static int serve(void *data)
{
	struct ptlrpc_service_part *part = data;

	while (!READ_ONCE(ended)) {
		struct ptlrpc_request *req = get_any(part);

		if (req)
			finish(part, req);
		else
			wait_event_idle_exclusive(part->scp_waitq, may_serve(&part->scp_nrs_hp) ||
						  may_serve(&part->scp_nrs_reg) || READ_ONCE(ended));
		cond_resched();
	}
	return 0;
}

/* Creates a request of one of five users; every eighth uses the high-priority head. */
static struct ptlrpc_request *make_request(unsigned int index)
{
	struct ptlrpc_request *req = kzalloc(sizeof(*req), GFP_KERNEL);
	u32 user = get_random_u32_below(5);

	if (!req)
		return NULL;
	req->rq_peer.nid.nid_type = 2;
	req->rq_peer.nid.nid_addr[0] = htonl(0x0a000000 + user);
	req->rq_pill.rc_fmt = (void *)1;
	req->rq_pill.rc_reqmsg = &req->message;
	req->hp = index % 8 == 0;
	req->message.opcode = index % 2 ? OST_READ : OST_WRITE;
	req->message.uid = 1000 + user;
	req->message.gid = 100;
	req->message.projid = ~0U;
	req->message.object.ioo_bufcnt = 1;
	req->message.piece.rnb_offset = index * 4096ULL;
	req->message.piece.rnb_len = 4096;
	snprintf(req->message.jobid, sizeof(req->message.jobid), "job.%u", user);
	return req;
}

static void bring(struct ptlrpc_service_part *part, unsigned int count)
{
	unsigned int index;

	for (index = 0; index < count; index++) {
		struct ptlrpc_request *req = make_request(index);

		if (!EXPECT(req))
			return;
		wait_event(part->room, atomic_read(&part->count) < 256);
		atomic_inc(&part->count);
		get_resources(req->hp ? &part->scp_nrs_hp : &part->scp_nrs_reg, &req->rq_nrq,
			      req->rq_nrq.nr_res_ptrs, false);
		spin_lock(&part->rpc_lock);
		list_add_tail(&req->link, &part->live);
		spin_unlock(&part->rpc_lock);
		spin_lock(&part->scp_req_lock);
		enqueue(&req->rq_nrq);
		spin_unlock(&part->scp_req_lock);
		wake_up(&part->scp_waitq);
		if (index % 16 == 15)
			move(part);
	}
}

/* Registration. */

static int add_policy(struct ptlrpc_nrs *nrs, struct ptlrpc_nrs_pol_desc *desc)
{
	struct ptlrpc_nrs_policy *policy = kzalloc(sizeof(*policy), GFP_KERNEL);
	int error = 0;

	if (!policy)
		return -ENOMEM;
	policy->pol_nrs = nrs;
	policy->pol_desc = desc;
	policy->pol_state = NRS_POL_STATE_STOPPED;
	policy->pol_flags = desc->pd_flags;
	INIT_LIST_HEAD(&policy->pol_list_queued);
	init_waitqueue_head(&policy->pol_wq);
	if (desc->pd_ops->op_policy_init)
		error = desc->pd_ops->op_policy_init(policy);
	if (error) {
		kfree(policy);
		return error;
	}
	spin_lock(&nrs->nrs_lock);
	list_add_tail(&policy->pol_list, &nrs->nrs_policy_list);
	if (desc->pd_flags & PTLRPC_NRS_FL_FALLBACK) {
		refcount_set(&policy->pol_start_ref, 1);
		policy->pol_state = NRS_POL_STATE_STARTED;
		nrs->nrs_policy_fallback = policy;
	}
	spin_unlock(&nrs->nrs_lock);
	return 0;
}

noinline int nrs_policy_unregister_locked(struct ptlrpc_nrs_pol_desc *desc);
noinline int nrs_policy_unregister_locked(struct ptlrpc_nrs_pol_desc *desc)
{
	unsigned int index;

	lockdep_assert_held(&nrs_core.nrs_mutex);
	lockdep_assert_held(&ptlrpc_all_services_mutex);
	for (index = 0; index < PARTS * 2; index++) {
		struct ptlrpc_nrs *nrs = head_of(index / 2, index % 2);
		struct ptlrpc_nrs_policy *policy = find_policy(nrs, desc->pd_name);

		if (!policy)
			continue;
		if (policy->pol_state != NRS_POL_STATE_STOPPED &&
		    !(policy->pol_flags & PTLRPC_NRS_FL_FALLBACK))
			return -EBUSY;
		spin_lock(&nrs->nrs_lock);
		list_del(&policy->pol_list);
		spin_unlock(&nrs->nrs_lock);
		if (desc->pd_ops->op_policy_fini)
			desc->pd_ops->op_policy_fini(policy);
		kfree(policy);
	}
	return 0;
}

noinline int ptlrpc_nrs_policy_register(struct ptlrpc_nrs_pol_conf *conf);
noinline int ptlrpc_nrs_policy_register(struct ptlrpc_nrs_pol_conf *conf)
{
	struct ptlrpc_nrs_pol_desc *desc;
	unsigned int index;
	int error = 0;

	if (conf->nc_flags & PTLRPC_NRS_FL_REG_EXTERN && conf->nc_flags & ~PTLRPC_NRS_FL_REG_EXTERN)
		return -EINVAL;
	desc = kzalloc(sizeof(*desc), GFP_KERNEL);
	if (!desc)
		return -ENOMEM;
	strscpy(desc->pd_name, conf->nc_name);
	desc->pd_ops = conf->nc_ops;
	desc->pd_owner = conf->nc_owner;
	desc->pd_flags = conf->nc_flags;
	mutex_lock(&nrs_core.nrs_mutex);
	mutex_lock(&ptlrpc_all_services_mutex);
	for (index = 0; index < PARTS * 2 && !error; index++)
		error = add_policy(head_of(index / 2, index % 2), desc);
	if (error) {
		nrs_policy_unregister_locked(desc);
		kfree(desc);
	} else {
		list_add_tail(&desc->pd_list, &nrs_core.nrs_policies);
	}
	mutex_unlock(&ptlrpc_all_services_mutex);
	mutex_unlock(&nrs_core.nrs_mutex);
	return error;
}

/* Files. */

static int set_policies(const char *text, const struct kernel_param *param)
{
	char buffer[64], *argument = buffer, *name, *word;
	bool regular = true, hp = true;
	unsigned int index;
	int error = 0;

	strscpy(buffer, text);
	argument = strim(buffer);
	name = strsep(&argument, " ");
	word = argument ? strpbrk(argument, " ") : NULL;
	if (argument && (!strncmp(argument, "reg", 3) || !strncmp(argument, "hp", 2))) {
		regular = argument[0] == 'r';
		hp = !regular;
		argument = word ? word + 1 : NULL;
	}
	mutex_lock(&nrs_core.nrs_mutex);
	for (index = 0; index < PARTS * 2 && !error; index++)
		if (index % 2 ? hp : regular)
			error = start(head_of(index / 2, index % 2), name, argument);
	mutex_unlock(&nrs_core.nrs_mutex);
	return error;
}

static int bring_part(void *data)
{
	bring(data, load_count);
	return 0;
}

static int bring_load(void)
{
	struct task_struct *tasks[PARTS * (SERVERS + 1)];
	unsigned int index, total;
	unsigned long begun = jiffies;

	total = load_count * PARTS;
	atomic_set(&answered, 0);
	atomic_set(&moved, 0);
	atomic_set(&forced, 0);
	atomic_set(&errors, 0);
	ended = false;
	for (index = 0; index < ARRAY_SIZE(tasks); index++) {
		struct ptlrpc_service_part *part = service.srv_parts[index % PARTS];

		tasks[index] = kthread_run(index < PARTS * SERVERS ? serve : bring_part, part,
					   "ptlrpc/%u", index);
		if (IS_ERR(tasks[index]))
			return PTR_ERR(tasks[index]);
	}
	while (atomic_read(&answered) < total && time_before(jiffies, begun + 300 * HZ))
		msleep(20);
	EXPECT(atomic_read(&answered) == total);
	EXPECT(atomic_read(&moved));
	WRITE_ONCE(ended, true);
	for (index = 0; index < PARTS; index++)
		wake_up_all(&service.srv_parts[index]->scp_waitq);
	msleep(200);
	pr_info("ptlrpc: %d answered, %d moved, %d forced, %u ms\n", atomic_read(&answered),
		atomic_read(&moved), atomic_read(&forced), jiffies_to_msecs(jiffies - begun));
	return atomic_read(&errors) ? -EIO : 0;
}

static int set_load(const char *text, const struct kernel_param *param)
{
	int error = kstrtouint(text, 0, &load_count);

	if (error)
		return error;
	/* Policies are selected meanwhile; all parameters of a module have one lock. */
	kernel_param_unlock(THIS_MODULE);
	error = bring_load();
	kernel_param_lock(THIS_MODULE);
	return error;
}

static const struct kernel_param_ops policies_ops = { .set = set_policies };
static const struct kernel_param_ops load_ops = { .set = set_load };

module_param_cb(nrs_policies, &policies_ops, NULL, 0200);
module_param_cb(load, &load_ops, NULL, 0200);

static void init_head(struct ptlrpc_service_part *part, struct ptlrpc_nrs *nrs,
		      enum ptlrpc_nrs_queue_type type)
{
	spin_lock_init(&nrs->nrs_lock);
	INIT_LIST_HEAD(&nrs->nrs_policy_list);
	INIT_LIST_HEAD(&nrs->nrs_policy_queued);
	nrs->nrs_svcpt = part;
	nrs->nrs_queue_type = type;
	INIT_LIST_HEAD(&fifos[part->scp_cpt][type == PTLRPC_NRS_QUEUE_HP].queue);
}

static int __init ptlrpc_init(void)
{
	struct ptlrpc_nrs_pol_conf conf = {
		.nc_name = "fifo",
		.nc_ops = &fifo_ops,
		.nc_flags = PTLRPC_NRS_FL_FALLBACK | PTLRPC_NRS_FL_REG_START,
	};
	unsigned int index;

	for (index = 0; index < PARTS; index++) {
		struct ptlrpc_service_part *part = kzalloc(sizeof(*part), GFP_KERNEL);

		if (!part)
			return -ENOMEM;
		part->scp_service = &service;
		part->scp_cpt = index;
		init_waitqueue_head(&part->scp_waitq);
		init_waitqueue_head(&part->room);
		spin_lock_init(&part->scp_req_lock);
		spin_lock_init(&part->rpc_lock);
		INIT_LIST_HEAD(&part->live);
		init_head(part, &part->scp_nrs_reg, PTLRPC_NRS_QUEUE_REG);
		init_head(part, &part->scp_nrs_hp, PTLRPC_NRS_QUEUE_HP);
		service.srv_parts[index] = part;
	}
	return ptlrpc_nrs_policy_register(&conf);
}

static void __exit ptlrpc_exit(void)
{
	struct ptlrpc_nrs_pol_desc *desc = list_first_entry(&nrs_core.nrs_policies,
							    struct ptlrpc_nrs_pol_desc, pd_list);

	mutex_lock(&nrs_core.nrs_mutex);
	mutex_lock(&ptlrpc_all_services_mutex);
	nrs_policy_unregister_locked(desc);
	mutex_unlock(&ptlrpc_all_services_mutex);
	mutex_unlock(&nrs_core.nrs_mutex);
	kfree(desc);
	kfree(service.srv_parts[0]);
	kfree(service.srv_parts[1]);
}

module_init(ptlrpc_init);
module_exit(ptlrpc_exit);
MODULE_DESCRIPTION("A stand-in for Lustre's ptlrpc");
MODULE_LICENSE("GPL");
