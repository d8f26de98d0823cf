// SPDX-License-Identifier: GPL-2.0-only
/*
 * A server with its own threads: some submit requests, others serve those that nrs dispatches.
 * Timers complete some requests in soft interrupts.
 */

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/wait.h>

#include "test.h"

#define BRINGERS	2
#define SERVERS		2

struct request {
	struct list_head link;
	struct timer_list timer;
	struct server *server;
	unsigned int dispatched, completed;
	bool submitted;
};

struct server {
	struct nrs_server *nrs;
	spinlock_t lock;
	struct list_head ready;
	wait_queue_head_t wait;
	struct request *requests;
	unsigned int count;
	atomic_t next, early, full, done;
	bool ended;
};

static void dispatch(void *context, const struct nrs_released *released)
{
	struct request *request = (struct request *)(uintptr_t)le64_to_cpu(released->cookie);
	struct server *server = context;

	might_sleep();
	spin_lock(&server->lock);
	request->dispatched++;
	list_add_tail(&request->link, &server->ready);
	spin_unlock(&server->lock);
	wake_up(&server->wait);
}

static void early(void *context, const struct nrs_early *reply)
{
	struct server *server = context;

	u64 place = le64_to_cpu(reply->cookie) - (uintptr_t)server->requests;

	CHECK(le32_to_cpu(reply->timeout_ms) > 1000, "%u ms", le32_to_cpu(reply->timeout_ms));
	CHECK(place < server->count * sizeof(struct request), "cookie %llx",
	      le64_to_cpu(reply->cookie));
	atomic_inc(&server->early);
}

static const struct nrs_server_ops ops = { .dispatch = dispatch, .early = early };

static void complete_request(struct request *request)
{
	struct server *server = request->server;
	int error;

	request->completed++;
	error = nrs_complete(server->nrs, (uintptr_t)request, 0, 4096);
	CHECK(!error, "%d", error);
	atomic_inc(&server->done);
}

static void over(struct timer_list *timer)
{
	complete_request(container_of(timer, struct request, timer));
}

static struct request *ready(struct server *server)
{
	struct request *request;

	spin_lock(&server->lock);
	request = list_first_entry_or_null(&server->ready, struct request, link);
	if (request)
		list_del(&request->link);
	spin_unlock(&server->lock);
	return request;
}

static int serve(void *data)
{
	struct server *server = data;

	while (!READ_ONCE(server->ended)) {
		struct request *request = ready(server);

		if (!request)
			wait_event_timeout(server->wait,
					   READ_ONCE(server->ended) || !list_empty(&server->ready),
					   HZ / 10);
		else if (capi_random(16))
			complete_request(request);
		else
			mod_timer(&request->timer, jiffies + 1);
	}
	return 0;
}

static int bring(void *data)
{
	struct server *server = data;

	for (;;) {
		unsigned int index = atomic_inc_return(&server->next) - 1;
		struct request *request;
		struct nrs_request record;
		int error;

		if (index >= server->count)
			return 0;
		request = &server->requests[index];
		request->server = server;
		timer_setup(&request->timer, over, 0);
		capi_request(&record, (uintptr_t)request);
		/* Below the estimate of nrs, so there are early replies. */
		record.timeout_ms = cpu_to_le32(1000);
		request->submitted = true;
		error = nrs_submit(server->nrs, &record, false);
		if (error == -EAGAIN) {
			atomic_inc(&server->full);
			error = nrs_submit(server->nrs, &record, true);
		}
		CHECK(!error, "%d", error);
	}
}

static struct nrs_attach attach(const char *service)
{
	struct nrs_attach attach = NRS_ATTACH_INIT("", "capi");

	attach.flags = cpu_to_le32(NRS_ATTACH_QUEUE_ALL);
	attach.requests_max = cpu_to_le32(64);
	strscpy(attach.service, service);
	return attach;
}

static void play(struct server *server)
{
	struct task_struct *tasks[BRINGERS + SERVERS] = {};
	struct nrs_stats stats;
	unsigned int index;

	for (index = 0; index < ARRAY_SIZE(tasks); index++) {
		tasks[index] = kthread_create(index < BRINGERS ? bring : serve, server,
					      "nrs_capi/%u", index);
		if (!CHECK(!IS_ERR(tasks[index]), "a thread: %ld", PTR_ERR(tasks[index])))
			return;
		get_task_struct(tasks[index]);
		wake_up_process(tasks[index]);
	}
	for (index = 0; index < BRINGERS; index++) {
		while (atomic_read(&server->next) < server->count + BRINGERS)
			msleep(10);
		kthread_stop(tasks[index]);
		put_task_struct(tasks[index]);
	}
	/* Queued requests are served while the close waits. */
	nrs_server_stats(server->nrs, &stats);
	CHECK(le64_to_cpu(stats.requests) == server->count, "%llu requests",
	      le64_to_cpu(stats.requests));
	nrs_server_close(server->nrs);
	WRITE_ONCE(server->ended, true);
	wake_up_all(&server->wait);
	for (; index < ARRAY_SIZE(tasks); index++) {
		kthread_stop(tasks[index]);
		put_task_struct(tasks[index]);
	}
	for (index = 0; index < server->count; index++) {
		struct request *request = &server->requests[index];

		timer_shutdown_sync(&request->timer);
		if (!CHECK(request->dispatched == 1 && request->completed == 1, "request %u: %u, %u", index,
			   request->dispatched, request->completed))
			break;
	}
	pr_info("nrs_capi_test: %d completed, %d without room at first, %d early replies\n",
		atomic_read(&server->done), atomic_read(&server->full), atomic_read(&server->early));
}

int capi_server(unsigned int count)
{
	struct server *server = kzalloc(sizeof(*server), GFP_KERNEL);
	struct nrs_attach how = attach("capi-server");
	int error = -ENOMEM;

	if (!server)
		return -ENOMEM;
	server->count = count;
	spin_lock_init(&server->lock);
	INIT_LIST_HEAD(&server->ready);
	init_waitqueue_head(&server->wait);
	server->requests = kvcalloc(count, sizeof(*server->requests), GFP_KERNEL);
	if (!server->requests)
		goto out;
	server->nrs = nrs_server_open(&how, &ops, server);
	error = PTR_ERR_OR_ZERO(server->nrs);
	if (!error)
		play(server);
out:
	kvfree(server->requests);
	kfree(server);
	return error;
}

/* Checks that @pointer is an ERR_PTR of @error. */
static void refused(const void *pointer, int error)
{
	CHECK(IS_ERR(pointer) && PTR_ERR(pointer) == error, "%ld, not %d", PTR_ERR(pointer), error);
}

/* Checks that a request keeps the module loaded until it is completed. */
static void pin(void)
{
	struct nrs_attach how = attach("capi-server");
	struct request request = {};
	struct nrs_request record;
	struct server server = { .count = 1 };

	spin_lock_init(&server.lock);
	INIT_LIST_HEAD(&server.ready);
	init_waitqueue_head(&server.wait);
	server.nrs = nrs_server_open(&how, &ops, &server);
	if (!CHECK(!IS_ERR(server.nrs), "%ld", PTR_ERR(server.nrs)))
		return;
	CHECK(module_refcount(THIS_MODULE) == 0, "pinned without requests");
	capi_request(&record, (uintptr_t)&request);
	CHECK(!nrs_submit(server.nrs, &record, true), "a request");
	CHECK(nrs_submit(server.nrs, &record, true) == -EEXIST, "duplicate cookie");
	CHECK(module_refcount(THIS_MODULE) == 1, "%d references", module_refcount(THIS_MODULE));
	wait_event(server.wait, ready(&server));
	CHECK(!nrs_complete(server.nrs, (uintptr_t)&request, 0, 0), "a request");
	CHECK(nrs_complete(server.nrs, (uintptr_t)&request, 0, 0) == -ENOENT, "completed twice");
	CHECK(module_refcount(THIS_MODULE) == 0, "%d references", module_refcount(THIS_MODULE));
	nrs_server_close(server.nrs);
}

static void refuse_servers(void)
{
	static const struct nrs_server_ops none = {};
	struct nrs_attach how = attach("capi-server");
	struct nrs_request record;
	struct nrs_server *server;

	refused(__nrs_server_open(NRS_KERNEL_VERSION + 1, THIS_MODULE, &how, &ops, NULL),
		-EPROTONOSUPPORT);
	refused(nrs_server_open(&how, &none, NULL), -EINVAL);
	how.size = 0;
	refused(nrs_server_open(&how, &ops, NULL), -EINVAL);
	how = attach("no/name");
	refused(nrs_server_open(&how, &ops, NULL), -EINVAL);
	how = attach("capi-server");
	server = nrs_server_open(&how, &ops, NULL);
	if (!CHECK(!IS_ERR(server), "%ld", PTR_ERR(server)))
		return;
	CHECK(nrs_complete(server, 1, 0, 0) == -ENOENT, "completion of an unknown request");
	capi_request(&record, 1);
	record.header.kind = cpu_to_le16(NRS_TYPE_RELEASED);
	CHECK(nrs_submit(server, &record, false) == -EINVAL, "wrong kind of record");
	record.header.size = cpu_to_le16(4);
	CHECK(nrs_submit(server, &record, false) == -EINVAL, "too short");
	record.header.size = cpu_to_le16(4000);
	CHECK(nrs_submit(server, &record, false) == -EINVAL, "too long");
	nrs_server_close(server);
}

static void refuse_policies(struct nrs_framework *framework)
{
	struct nrs_request attrs;
	struct nrs_policy *policy;
	struct nrs_item item;
	char text[8];
	u64 until;

	refused(nrs_policy_start(framework, "nothing", NULL, NRS_HEAD_REGULAR, 0), -ENOENT);
	refused(nrs_policy_start(framework, "tbf", "nothing", NRS_HEAD_REGULAR, 0), -EINVAL);
	refused(nrs_policy_start(framework, "fifo", "much", NRS_HEAD_REGULAR, 0), -EINVAL);
	refused(nrs_policy_start(framework, "tbf", "uid", NRS_HEAD_REGULAR, 1), -ENOENT);
	refused(nrs_policy_start(framework, "tbf", "uid", 2, 0), -EINVAL);
	CHECK(nrs_framework_set(framework, "nothing", "1") == -ENOENT, "a parameter");
	CHECK(nrs_framework_set(framework, "nrs_policies", "fifo") == -EBUSY,
	      "policies are set by the framework only");
	CHECK(nrs_framework_show(framework, "nrs_policies", text, sizeof(text)) == -ENOSPC,
	      "the buffer is too small");
	policy = nrs_policy_start(framework, "tbf", "uid", NRS_HEAD_REGULAR, 0);
	if (!CHECK(!IS_ERR(policy), "%ld", PTR_ERR(policy)))
		return;
	CHECK(module_refcount(THIS_MODULE) == 1, "%d references", module_refcount(THIS_MODULE));
	refused(nrs_policy_start(framework, "tbf", "nid", NRS_HEAD_REGULAR, 0), -EBUSY);
	CHECK(module_refcount(THIS_MODULE) == 1, "%d references", module_refcount(THIS_MODULE));
	capi_request(&attrs, 0);
	attrs.address_len = 5;
	CHECK(nrs_enqueue(policy, &item, &attrs) == -EINVAL, "malformed");
	CHECK(!nrs_get(policy, true, &until) && !until, "nothing is queued");
	nrs_policy_stop(policy);
	CHECK(module_refcount(THIS_MODULE) == 0, "%d references", module_refcount(THIS_MODULE));
}

int capi_refusals(void)
{
	static const struct nrs_framework_ops none = {};
	struct nrs_attach how = attach("capi-both");
	struct nrs_framework *framework;

	refuse_servers();
	pin();
	refused(nrs_framework_open("no/name", 1, &capi_idle_ops, NULL), -EINVAL);
	refused(nrs_framework_open("capi-both", 0, &capi_idle_ops, NULL), -EINVAL);
	refused(nrs_framework_open("capi-both", 1, &none, NULL), -EINVAL);
	framework = nrs_framework_open("capi-both", 1, &capi_idle_ops, NULL);
	if (!CHECK(!IS_ERR(framework), "%ld", PTR_ERR(framework)))
		return 0;
	refused(nrs_framework_open("capi-both", 1, &capi_idle_ops, NULL), -EBUSY);
	refused(nrs_server_open(&how, &ops, NULL), -EBUSY);
	refuse_policies(framework);
	nrs_framework_close(framework);
	return 0;
}
