// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policies of nrs for ptlrpc, which serialises the calls for a head with the partition's lock.
 *
 *  op_policy_start ─▶ struct head ─ op_res_get ─▶ struct request, idle ─ op_req_enqueue ─▶ queued
 *                                                     ▲   ▲                   │        │ op_req_get
 *                                                     │   └─ op_req_dequeue ──┘        ▼
 *                                                     └──────── op_req_stop ─────── started
 *
 * A request's ptlrpc resource holds its nrs data; a moving request has one for each head.
 */

#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include <obd_support.h>
#include <lustre_net.h>

#include "nrs_lustre.h"

/* A ptlrpc service, referenced by its policies on each head; under ptlrpc's mutex but for heads. */
struct service {
	struct list_head link;
	struct ptlrpc_service *ptlrpc;
	struct nrs_framework *nrs;	/* or an ERR_PTR */
	unsigned int references;
	spinlock_t lock;
	struct list_head heads;		/* with started policies; under the lock */
};

/* A policy started on a head of a partition. */
struct head {
	struct list_head link;
	struct service *service;
	struct ptlrpc_nrs *ptlrpc;
	struct nrs_policy *nrs;
	struct list_head queued;	/* oldest first; under the partition's lock */
	struct hrtimer timer;
	struct work_struct stop;
};

/* Data of nrs for a request. */
struct request {
	struct ptlrpc_nrs_resource resource;
	struct ptlrpc_nrs_request *ptlrpc;
	struct list_head link;
	bool moved;
	struct nrs_item item;
	struct nrs_request record;
};

static const struct ptlrpc_nrs_pol_ops policy_ops;
static LIST_HEAD(services);
static DECLARE_WAIT_QUEUE_HEAD(gone);
static struct workqueue_struct *stopping;

/* Resumes a head. The bit shares a word with other fields; ptlrpc's own tbf does the same. */
static void unthrottle(struct head *head)
{
	if (!head->ptlrpc->nrs_throttling)
		return;
	head->ptlrpc->nrs_throttling = 0;
	wake_up(&head->ptlrpc->nrs_svcpt->scp_waitq);
}

static void wake_service(void *context)
{
	struct service *service = context;
	struct head *head;

	spin_lock(&service->lock);
	list_for_each_entry(head, &service->heads, link) {
		struct ptlrpc_service_part *part = head->ptlrpc->nrs_svcpt;

		/* Excludes a wake between nrs_get() and the use of its result in take(). */
		spin_lock(&part->scp_req_lock);
		unthrottle(head);
		spin_unlock(&part->scp_req_lock);
	}
	spin_unlock(&service->lock);
}

static const struct nrs_framework_ops framework_ops = { .wake = wake_service };

static struct service *find_service(struct ptlrpc_nrs_policy *policy)
{
	struct ptlrpc_service *ptlrpc = policy->pol_nrs->nrs_svcpt->scp_service;
	struct service *service;

	list_for_each_entry(service, &services, link)
		if (service->ptlrpc == ptlrpc)
			return service;
	return NULL;
}

static void open_framework(struct service *service)
{
	const char *name = service->ptlrpc->srv_name;

	service->nrs = nrs_framework_open(name, service->ptlrpc->srv_ncpts, &framework_ops, service);
	if (IS_ERR(service->nrs))
		pr_warn("nrs_lustre: cannot open service %s: %ld\n", name, PTR_ERR(service->nrs));
}

/* Opens the nrs service before the first start, so that parameters can be set earlier. */
static int policy_init(struct ptlrpc_nrs_policy *policy)
{
	struct ptlrpc_service *ptlrpc = policy->pol_nrs->nrs_svcpt->scp_service;
	struct service *service = find_service(policy);

	if (!service) {
		service = kzalloc(sizeof(*service), GFP_KERNEL);
		if (!service)
			return -ENOMEM;
		service->ptlrpc = ptlrpc;
		spin_lock_init(&service->lock);
		INIT_LIST_HEAD(&service->heads);
		open_framework(service);
		list_add(&service->link, &services);
	}
	service->references++;
	return 0;
}

static void policy_fini(struct ptlrpc_nrs_policy *policy)
{
	struct service *service = find_service(policy);

	if (!service || --service->references)
		return;
	/* Policies were stopped in contexts that cannot sleep. */
	flush_workqueue(stopping);
	if (!IS_ERR(service->nrs))
		nrs_framework_close(service->nrs);
	list_del(&service->link);
	kfree(service);
	wake_up(&gone);
}

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	unthrottle(container_of(timer, struct head, timer));
	return HRTIMER_NORESTART;
}

static void stop_later(struct work_struct *work)
{
	struct head *head = container_of(work, struct head, stop);

	nrs_policy_stop(head->nrs);
	kfree(head);
}

/* Returns the index of a partition in its service. */
static unsigned int place_of(const struct ptlrpc_service_part *part)
{
	const struct ptlrpc_service *service = part->scp_service;
	unsigned int place = 0;

	while (place < service->srv_ncpts && service->srv_parts[place] != part)
		place++;
	return place;
}

static int policy_start(struct ptlrpc_nrs_policy *policy, char *argument)
{
	struct service *service = find_service(policy);
	struct ptlrpc_nrs *ptlrpc = policy->pol_nrs;
	const char *name = policy->pol_desc->pd_name;
	struct head *head;
	int error;

	/* The cause of an earlier failure may no longer exist. */
	if (IS_ERR(service->nrs))
		open_framework(service);
	if (IS_ERR(service->nrs))
		return PTR_ERR(service->nrs);
	/* The same policy with another argument may just have been stopped. */
	flush_workqueue(stopping);
	head = kzalloc(sizeof(*head), GFP_NOFS);
	if (!head)
		return -ENOMEM;
	head->service = service;
	head->ptlrpc = ptlrpc;
	INIT_LIST_HEAD(&head->queued);
	INIT_WORK(&head->stop, stop_later);
	hrtimer_setup(&head->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	/* ptlrpc has its own tbf. */
	head->nrs = nrs_policy_start(service->nrs, strcmp(name, "nrs_tbf") ? name : "tbf", argument,
				     ptlrpc->nrs_queue_type == PTLRPC_NRS_QUEUE_HP ?
				     NRS_HEAD_HIGH : NRS_HEAD_REGULAR, place_of(ptlrpc->nrs_svcpt));
	error = PTR_ERR_OR_ZERO(head->nrs);
	if (error) {
		kfree(head);
		return error;
	}
	spin_lock(&service->lock);
	list_add(&head->link, &service->heads);
	spin_unlock(&service->lock);
	policy->pol_private = head;
	return 0;
}

/* May be called with spinlocks held, if the last request moves. */
static void policy_stop(struct ptlrpc_nrs_policy *policy)
{
	struct head *head = policy->pol_private;

	spin_lock(&head->service->lock);
	list_del(&head->link);
	spin_unlock(&head->service->lock);
	hrtimer_cancel(&head->timer);
	unthrottle(head);
	queue_work(stopping, &head->stop);
}

/* Sets the record of a moving request; one just taken needs none and may be ending. */
static void copy_record(struct request *request, struct ptlrpc_request *req, spinlock_t *lock)
{
	struct ptlrpc_nrs_resource *before;

	spin_lock(lock);
	if (ptlrpc_nrs_req_can_move(req)) {
		before = req->rq_nrq.nr_res_ptrs[req->rq_nrq.nr_res_idx];
		if (before->res_policy->pol_desc->pd_ops == &policy_ops)
			request->record = container_of(before, struct request, resource)->record;
		else
			describe_request(&request->record, req);
	}
	spin_unlock(lock);
}

static int resource_get(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *ptlrpc,
			const struct ptlrpc_nrs_resource *parent, struct ptlrpc_nrs_resource **res, bool moving)
{
	struct ptlrpc_request *req = container_of(ptlrpc, struct ptlrpc_request, rq_nrq);
	struct request *request = kzalloc(sizeof(*request), moving ? GFP_ATOMIC : GFP_NOFS);

	if (!request)
		return -ENOMEM;
	request->ptlrpc = ptlrpc;
	if (moving)
		copy_record(request, req, &policy->pol_nrs->nrs_svcpt->scp_req_lock);
	else
		describe_request(&request->record, req);
	*res = &request->resource;
	/* Resources have a single level. */
	return 1;
}

static void resource_put(struct ptlrpc_nrs_policy *policy, const struct ptlrpc_nrs_resource *res)
{
	struct request *request = container_of(res, struct request, resource);

	/* ptlrpc does not wake a thread for a moved request. */
	if (request->moved)
		wake_up(&policy->pol_nrs->nrs_svcpt->scp_waitq);
	kfree(request);
}

/* Returns the nrs data of a request that a policy has accepted or is offered. */
static struct request *request_of(struct ptlrpc_nrs_request *ptlrpc)
{
	return container_of(ptlrpc->nr_res_ptrs[ptlrpc->nr_res_idx], struct request, resource);
}

static int req_enqueue(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *ptlrpc)
{
	struct request *request = request_of(ptlrpc);
	struct head *head = policy->pol_private;
	int error = nrs_enqueue(head->nrs, &request->item, &request->record);

	if (error)
		return error;
	list_add_tail(&request->link, &head->queued);
	/* The request may be eligible although earlier ones are throttled. */
	unthrottle(head);
	return 0;
}

/*
 * Longest time for which a head is throttled at once. ptlrpc does not tell a policy that another
 * one replaces it, and drains it only while the head is not throttled.
 */
#define THROTTLE_MAX_NS	(100 * NSEC_PER_MSEC)

/* Takes a request; while all are throttled, ptlrpc skips this head. */
static struct request *take(struct head *head, bool force)
{
	u64 until;
	struct nrs_item *item = nrs_get(head->nrs, force, &until);

	if (item) {
		list_del(&container_of(item, struct request, item)->link);
		return container_of(item, struct request, item);
	}
	if (until && !force) {
		until = min(until, ktime_get_ns() + THROTTLE_MAX_NS);
		head->ptlrpc->nrs_throttling = 1;
		hrtimer_start(&head->timer, ns_to_ktime(until), HRTIMER_MODE_ABS);
	}
	return NULL;
}

static struct ptlrpc_nrs_request *req_get(struct ptlrpc_nrs_policy *policy, bool peek, bool force)
{
	struct head *head = policy->pol_private;
	struct request *request = NULL;

	if (peek)
		/* ptlrpc peeks only to see how long requests have been queued. */
		request = list_first_entry_or_null(&head->queued, struct request, link);
	else if (force || !head->ptlrpc->nrs_throttling)
		request = take(head, force);
	return request ? request->ptlrpc : NULL;
}

static void req_dequeue(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *ptlrpc)
{
	struct head *head = policy->pol_private;
	struct request *request = request_of(ptlrpc);

	WARN_ON_ONCE(nrs_dequeue(head->nrs, &request->item));
	list_del(&request->link);
	request->moved = true;
	unthrottle(head);
}

static void req_stop(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *ptlrpc)
{
	struct head *head = policy->pol_private;

	nrs_finish(head->nrs, &request_of(ptlrpc)->item);
}

static const struct ptlrpc_nrs_pol_ops policy_ops = {
	.op_policy_init = policy_init,
	.op_policy_fini = policy_fini,
	.op_policy_start = policy_start,
	.op_policy_stop = policy_stop,
	.op_res_get = resource_get,
	.op_res_put = resource_put,
	.op_req_get = req_get,
	.op_req_enqueue = req_enqueue,
	.op_req_dequeue = req_dequeue,
	.op_req_stop = req_stop,
};

/* Makes each policy available in each service. */
static bool is_for_all(const struct ptlrpc_service *service, const struct ptlrpc_nrs_pol_desc *desc)
{
	return true;
}

static const char *const names[] = { "fairshare", "qbm", "nrs_tbf" };

static void unregister(unsigned int count)
{
	struct ptlrpc_nrs_pol_desc *descs[ARRAY_SIZE(names)];
	unsigned int index;

	for (index = 0; index < count; index++)
		descs[index] = ptlrpc_unregister(names[index]);
	/* A target being unmounted still uses the policies. */
	wait_event(gone, list_empty_careful(&services));
	/* The policy_fini() that removed the last one has not returned yet. */
	ptlrpc_synchronize();
	for (index = 0; index < count; index++)
		OBD_FREE_PTR(descs[index]);
	destroy_workqueue(stopping);
}

static int __init nrs_lustre_init(void)
{
	unsigned int count;
	int error = ptlrpc_find();

	if (error)
		return error;
	stopping = alloc_workqueue("nrs_lustre", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!stopping)
		return -ENOMEM;
	for (count = 0; count < ARRAY_SIZE(names); count++) {
		struct ptlrpc_nrs_pol_conf conf = {
			.nc_ops = &policy_ops,
			.nc_compat = is_for_all,
			.nc_owner = THIS_MODULE,
			.nc_flags = PTLRPC_NRS_FL_REG_EXTERN,
		};

		strscpy(conf.nc_name, names[count]);
		error = ptlrpc_register(&conf);
		if (error) {
			unregister(count);
			return error;
		}
	}
	return 0;
}

static void __exit nrs_lustre_exit(void)
{
	unregister(ARRAY_SIZE(names));
}

module_init(nrs_lustre_init);
module_exit(nrs_lustre_exit);
MODULE_DESCRIPTION("Policies of nrs for Lustre servers");
MODULE_LICENSE("GPL");
