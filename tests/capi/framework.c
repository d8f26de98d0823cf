// SPDX-License-Identifier: GPL-2.0-only
/*
 * A framework with the requirements of Lustre's ptlrpc: partitions with a regular and a
 * high-priority head, a spinlock around all calls for requests, server threads, and a fallback
 * policy for requests that nrs refuses. Requests move to the other head, and policies are replaced
 * while they have requests.
 */

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/wait.h>

#include "test.h"

#define PARTITIONS	2
#define HEADS		2
#define SERVERS		2	/* threads of a partition */
#define POLICIES_MAX	4	/* of a head, including drained ones */
#define STEPS_MAX	24
#define QUEUED_MAX	512	/* queued or started requests of a partition */

struct request {
	struct nrs_item item;
	struct list_head link;		/* in all queued requests, or in the head's fallback queue */
	struct nrs_policy *policy;	/* policy of the request; NULL: the fallback policy */
	unsigned int head;
	unsigned int answers;
	bool started;
};

struct running {
	struct nrs_policy *policy;	/* NULL: free */
	unsigned int queued, started;
	bool stopping;
};

struct head {
	struct running policies[POLICIES_MAX];
	struct list_head own;
	bool throttled;			/* until the timer expires, or a change */
	struct hrtimer timer;
	struct partition *partition;
};

struct partition {
	spinlock_t lock;
	struct head heads[HEADS];
	struct list_head queued;	/* in policies of nrs */
	unsigned int active;		/* queued or started, of all policies */
	wait_queue_head_t wait;
	struct framework *framework;
	unsigned int cpt;
};

struct framework {
	struct nrs_framework *nrs;
	struct partition partitions[PARTITIONS];
	struct request *requests;
	unsigned int count;
	unsigned int limit;		/* requests submitted before the next step */
	atomic_t next, answered, moved, forced, declined, wakes;
	bool ended;
};

static void wake(void *context)
{
	struct framework *framework = context;
	unsigned int cpt;

	atomic_inc(&framework->wakes);
	for (cpt = 0; cpt < PARTITIONS; cpt++) {
		struct partition *partition = &framework->partitions[cpt];

		spin_lock(&partition->lock);
		partition->heads[0].throttled = false;
		partition->heads[1].throttled = false;
		spin_unlock(&partition->lock);
		wake_up_all(&partition->wait);
	}
}

static const struct nrs_framework_ops ops = { .wake = wake };

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct head *head = container_of(timer, struct head, timer);

	WRITE_ONCE(head->throttled, false);
	wake_up_all(&head->partition->wait);
	return HRTIMER_NORESTART;
}

/* Queues a request; the caller must hold the partition's lock. */
static void add(struct partition *partition, struct request *request, unsigned int head)
{
	struct head *to = &partition->heads[head];
	struct nrs_request attrs;
	unsigned int index;

	capi_request(&attrs, 0);
	to->throttled = false;
	request->head = head;
	request->policy = NULL;
	for (index = 0; index < POLICIES_MAX; index++) {
		struct running *running = &to->policies[index];

		if (!running->policy || running->stopping)
			continue;
		if (!nrs_enqueue(running->policy, &request->item, &attrs)) {
			request->policy = running->policy;
			running->queued++;
			list_add_tail(&request->link, &partition->queued);
			return;
		}
		atomic_inc(&partition->framework->declined);
	}
	list_add_tail(&request->link, &to->own);
}

static struct running *find(struct partition *partition, struct request *request)
{
	struct head *head = &partition->heads[request->head];
	unsigned int index;

	for (index = 0; index < POLICIES_MAX; index++)
		if (head->policies[index].policy == request->policy)
			return &head->policies[index];
	capi_failed("the policy of a request is not there");
	return NULL;
}

/* Removes a request from a head; the caller must hold the partition's lock. */
static struct request *take(struct partition *partition, struct head *head)
{
	struct request *request;
	unsigned int index;
	u64 until, at = 0, later;

	request = list_first_entry_or_null(&head->own, struct request, link);
	if (request) {
		list_del(&request->link);
		return request;
	}
	for (index = 0; index < POLICIES_MAX; index++) {
		struct running *running = &head->policies[index];
		struct nrs_item *item;
		bool some;

		if (!running->policy || (!running->stopping && READ_ONCE(head->throttled)))
			continue;
		some = nrs_peek(running->policy, running->stopping, &until);
		CHECK(some || !running->stopping || !running->queued, "%u queued", running->queued);
		item = nrs_get(running->policy, running->stopping, &later);
		if (item) {
			request = container_of(item, struct request, item);
			/* A throttled request may be eligible meanwhile. */
			CHECK(some || until, "nrs_get() returned a request, nrs_peek() did not");
			CHECK(request->policy == running->policy, "request of another policy");
			list_del(&request->link);
			running->queued--;
			running->started++;
			if (running->stopping)
				atomic_inc(&partition->framework->forced);
			return request;
		}
		CHECK(later ? running->queued : !running->queued, "until %llu, %u queued", later,
		      running->queued);
		if (later)
			at = at ? min(at, later) : later;
	}
	if (at) {
		WRITE_ONCE(head->throttled, true);
		hrtimer_start(&head->timer, ns_to_ktime(at), HRTIMER_MODE_ABS);
	}
	return NULL;
}

static struct request *serve_one(struct partition *partition)
{
	struct request *request;

	spin_lock(&partition->lock);
	request = take(partition, &partition->heads[1]);
	if (!request)
		request = take(partition, &partition->heads[0]);
	if (request) {
		CHECK(!request->started, "started twice");
		request->started = true;
	}
	spin_unlock(&partition->lock);
	return request;
}

static void finish(struct partition *partition, struct request *request)
{
	spin_lock(&partition->lock);
	if (request->policy) {
		struct running *running = find(partition, request);

		nrs_finish(request->policy, &request->item);
		if (running)
			running->started--;
	}
	request->answers++;
	partition->active--;
	spin_unlock(&partition->lock);
	wake_up_all(&partition->wait);
	atomic_inc(&partition->framework->answered);
}

/* Serves requests in a thread. */
static int serve(void *data)
{
	struct partition *partition = data;
	struct framework *framework = partition->framework;

	while (!READ_ONCE(framework->ended)) {
		struct request *request = serve_one(partition);

		if (request) {
			if (!capi_random(64))
				usleep_range(50, 100);
			finish(partition, request);
		} else {
			/* Polls regularly, like ptlrpc's threads. */
			wait_event_interruptible_timeout(partition->wait, READ_ONCE(framework->ended) ||
							 READ_ONCE(partition->active), 2);
			cond_resched();
		}
	}
	return 0;
}

/* Submits the requests of a partition in a thread. */
static int bring(void *data)
{
	struct partition *partition = data;
	struct framework *framework = partition->framework;

	for (;;) {
		unsigned int index = atomic_inc_return(&framework->next) - 1;

		if (index >= framework->count)
			return 0;
		wait_event(partition->wait, READ_ONCE(partition->active) < QUEUED_MAX &&
			   index < READ_ONCE(framework->limit));
		spin_lock(&partition->lock);
		partition->active++;
		add(partition, &framework->requests[index], !capi_random(8));
		spin_unlock(&partition->lock);
		wake_up_all(&partition->wait);
		cond_resched();
	}
}

/* Moves a regular request to high priority. */
static void move(struct partition *partition)
{
	struct request *request;

	spin_lock(&partition->lock);
	/* The newest request, because the older ones are about to be served. */
	list_for_each_entry_reverse(request, &partition->queued, link) {
		struct running *running;

		if (request->head)
			continue;
		running = find(partition, request);
		if (!CHECK(!nrs_dequeue(request->policy, &request->item), "a queued request not found"))
			break;
		CHECK(nrs_dequeue(request->policy, &request->item) == -ENOENT, "dequeued twice");
		list_del(&request->link);
		if (running)
			running->queued--;
		add(partition, request, 1);
		atomic_inc(&partition->framework->moved);
		break;
	}
	spin_unlock(&partition->lock);
}

/*
 * Executes a step: "NAME [ARGUMENT]" starts a policy in all partitions and heads, while earlier
 * ones are drained, "-" starts none; "!NAME VALUE" sets a parameter.
 */
static int step(struct framework *framework, char *text)
{
	char *name = strsep(&text, " ");
	unsigned int cpt, index, at;

	if (*name == '!')
		return nrs_framework_set(framework->nrs, name + 1, text);

	for (cpt = 0; cpt < PARTITIONS; cpt++) {
		for (at = 0; at < HEADS; at++) {
			struct partition *partition = &framework->partitions[cpt];
			struct head *head = &partition->heads[at];
			struct nrs_policy *policy = NULL;
			bool put = false;

			if (strcmp(name, "-")) {
				policy = nrs_policy_start(framework->nrs, name, text, at, cpt);
				if (IS_ERR(policy))
					return PTR_ERR(policy);
			}
			spin_lock(&partition->lock);
			for (index = 0; index < POLICIES_MAX; index++) {
				struct running *running = &head->policies[index];

				if (running->policy) {
					running->stopping = true;
				} else if (policy && !put) {
					*running = (struct running) { .policy = policy };
					put = true;
				}
			}
			spin_unlock(&partition->lock);
			CHECK(put || !policy, "too many policies");
			wake_up_all(&partition->wait);
		}
	}
	return 0;
}

/* Stops drained policies; returns true if a stopping policy is not drained. */
static bool reap(struct framework *framework)
{
	unsigned int cpt, index, at;
	bool left = false;

	for (cpt = 0; cpt < PARTITIONS; cpt++) {
		struct partition *partition = &framework->partitions[cpt];

		for (at = 0; at < HEADS; at++) {
			for (index = 0; index < POLICIES_MAX; index++) {
				struct running *running = &partition->heads[at].policies[index];
				struct nrs_policy *policy = NULL;

				spin_lock(&partition->lock);
				if (running->stopping && !running->queued && !running->started) {
					policy = running->policy;
					*running = (struct running) {};
				}
				left |= running->stopping;
				spin_unlock(&partition->lock);
				if (policy)
					nrs_policy_stop(policy);
			}
		}
	}
	return left;
}

/* Executes all steps but the first, in order, and moves requests, until all are answered. */
static void stir(struct framework *framework, char *script)
{
	unsigned long begun = jiffies;
	char *texts[STEPS_MAX], *text;
	unsigned int steps = 0, done = 0;

	while (steps < STEPS_MAX && (text = strsep(&script, ";")))
		texts[steps++] = text;
	while (atomic_read(&framework->answered) < framework->count) {
		/*
		 * Waits for enough answers since the last step, and for the policy before the last to
		 * drain.
		 */
		unsigned int each = framework->count / (steps + 1), cpt;

		if (!reap(framework) && done < steps &&
		    atomic_read(&framework->answered) >= each * (done + 1)) {
			int error = step(framework, texts[done++]);

			CHECK(!error, "step %u: %d", done, error);
		}
		/* Keeps requests queued when the next step begins. */
		WRITE_ONCE(framework->limit, done < steps ? each * (done + 2) : framework->count);
		for (cpt = 0; cpt < PARTITIONS; cpt++)
			wake_up_all(&framework->partitions[cpt].wait);
		for (cpt = 0; cpt < PARTITIONS * 8; cpt++)
			move(&framework->partitions[cpt % PARTITIONS]);
		usleep_range(200, 400);
		if (!CHECK(time_before(jiffies, begun + 600 * HZ), "%d of %u requests answered in 600 s",
			   atomic_read(&framework->answered), framework->count))
			break;
	}
	CHECK(done == steps, "%u of %u steps done", done, steps);
}

static void stop_all(struct framework *framework)
{
	unsigned int cpt, at, index;

	for (cpt = 0; cpt < PARTITIONS; cpt++)
		for (at = 0; at < HEADS; at++)
			for (index = 0; index < POLICIES_MAX; index++)
				framework->partitions[cpt].heads[at].policies[index].stopping =
					framework->partitions[cpt].heads[at].policies[index].policy;
	CHECK(!reap(framework), "a policy has requests");
}

static void show(struct framework *framework, const char *name)
{
	char *text = kzalloc(65536, GFP_KERNEL);
	ssize_t size = text ? nrs_framework_show(framework->nrs, name, text, 65536) : -ENOMEM;

	if (CHECK(size >= 0, "%s: %zd", name, size))
		CHECK(size == strlen(text) && size, "%s: %zd bytes", name, size);
	kfree(text);
}

/* Threads of a test, which are joined. */
struct crew {
	struct task_struct *tasks[PARTITIONS * (SERVERS + 1)];
	unsigned int count;
};

static void hire(struct crew *crew, int (*what)(void *), struct partition *partition)
{
	struct task_struct *task = kthread_create(what, partition, "nrs_capi/%u", crew->count);

	if (!CHECK(!IS_ERR(task), "a thread: %ld", PTR_ERR(task)))
		return;
	/* The thread may exit before it is joined. */
	get_task_struct(task);
	wake_up_process(task);
	crew->tasks[crew->count++] = task;
}

static void dismiss(struct crew *crew)
{
	while (crew->count) {
		struct task_struct *task = crew->tasks[--crew->count];

		kthread_stop(task);
		put_task_struct(task);
	}
}

static void play(struct framework *framework, char *script)
{
	struct crew bringers = {}, servers = {};
	unsigned int cpt, index;

	for (cpt = 0; cpt < PARTITIONS; cpt++) {
		for (index = 0; index < SERVERS; index++)
			hire(&servers, serve, &framework->partitions[cpt]);
		hire(&bringers, bring, &framework->partitions[cpt]);
	}
	stir(framework, script);
	show(framework, "nrs_policies");
	show(framework, "clients");
	dismiss(&bringers);
	WRITE_ONCE(framework->ended, true);
	dismiss(&servers);
	for (index = 0; index < framework->count; index++)
		if (!CHECK(framework->requests[index].answers == 1, "request %u: %u answers", index,
			   framework->requests[index].answers))
			break;
}

static void init_partition(struct framework *framework, unsigned int cpt)
{
	struct partition *partition = &framework->partitions[cpt];

	unsigned int at;

	spin_lock_init(&partition->lock);
	for (at = 0; at < HEADS; at++) {
		struct head *head = &partition->heads[at];

		INIT_LIST_HEAD(&head->own);
		hrtimer_setup(&head->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
		head->partition = partition;
	}
	INIT_LIST_HEAD(&partition->queued);
	init_waitqueue_head(&partition->wait);
	partition->framework = framework;
	partition->cpt = cpt;
}

int capi_framework(unsigned int count, char *script)
{
	struct framework *framework = kzalloc(sizeof(*framework), GFP_KERNEL);
	char *first = strsep(&script, ";");
	unsigned int cpt;
	int error = -ENOMEM;

	if (!framework)
		return -ENOMEM;
	framework->count = count;
	framework->requests = kvcalloc(count, sizeof(*framework->requests), GFP_KERNEL);
	if (!framework->requests)
		goto out;
	for (cpt = 0; cpt < PARTITIONS; cpt++)
		init_partition(framework, cpt);
	framework->nrs = nrs_framework_open("capi", PARTITIONS, &ops, framework);
	error = PTR_ERR_OR_ZERO(framework->nrs);
	if (error)
		goto out;
	error = step(framework, first);
	if (!error)
		play(framework, script);
	stop_all(framework);
	nrs_framework_close(framework->nrs);
	for (cpt = 0; cpt < PARTITIONS; cpt++) {
		hrtimer_cancel(&framework->partitions[cpt].heads[0].timer);
		hrtimer_cancel(&framework->partitions[cpt].heads[1].timer);
	}
	pr_info("nrs_capi_test: %d answered, %d moved, %d forced, %d declined, %d wakes\n",
		atomic_read(&framework->answered), atomic_read(&framework->moved),
		atomic_read(&framework->forced), atomic_read(&framework->declined),
		atomic_read(&framework->wakes));
out:
	kvfree(framework->requests);
	kfree(framework);
	return error;
}
