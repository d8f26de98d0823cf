// SPDX-License-Identifier: GPL-2.0-only
/*
 * A framework with one head, which passes requests through each policy with a spinlock held. That
 * of tests/lustre has threads, and replaces policies under load.
 */

#include <linux/err.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "test.h"

#define COUNT	32	/* requests of a policy */

struct request {
	struct nrs_item item;
	enum { IDLE, QUEUED, STARTED } state;
};

struct framework {
	struct nrs_framework *nrs;
	spinlock_t lock;
	struct request requests[COUNT];
	char text[8192];
};

static const struct step {
	const char *name, *argument, *rule;
	bool throttles, declines_writes;
} steps[] = {
	{ "fifo" },
	{ "fairshare", "uid_fair" },
	{ "tbf", "uid", "change default rate=1", true },
	{ "qbm" },
	{ "orr", .declines_writes = true },
	{ "crrn" },
	{ "trr", .declines_writes = true },
	{ "delay", .throttles = true },
};

/* Queues a request: a read if the policy declines the write that it would have been. */
static void enqueue(struct framework *framework, const struct step *step, struct nrs_policy *policy,
		    struct request *request)
{
	struct nrs_request attrs;
	int error;

	capi_request(&attrs, 0);
	spin_lock(&framework->lock);
	if (step->declines_writes && attrs.opcode == cpu_to_le32(CAPI_WRITE)) {
		error = nrs_enqueue(policy, &request->item, &attrs);
		CHECK(error == -EAGAIN, "%s: a write: %d", step->name, error);
		attrs.opcode = cpu_to_le32(CAPI_READ);
	}
	error = nrs_enqueue(policy, &request->item, &attrs);
	spin_unlock(&framework->lock);
	CHECK(!error, "%s: %d", step->name, error);
	request->state = error ? IDLE : QUEUED;
}

/* Takes a request out; returns false if none is queued, or if all are throttled until @until. */
static bool get(struct nrs_policy *policy, bool force, u64 *until)
{
	u64 peeked;
	bool some = nrs_peek(policy, force, &peeked);
	struct nrs_item *item = nrs_get(policy, force, until);
	struct request *request = container_of(item, struct request, item);

	/* A throttled request may be eligible meanwhile, and only nrs_get() checks rates. */
	CHECK(item ? some || peeked : !some || *until, "nrs_peek(): %d until %llu", some, peeked);
	if (item && CHECK(request->state == QUEUED, "state %u", request->state))
		request->state = STARTED;
	return item;
}

/* Queues requests, one of them twice, and takes out half of them unless throttled. */
static void use(struct framework *framework, const struct step *step, struct nrs_policy *policy)
{
	struct request *moved = &framework->requests[COUNT / 2];
	unsigned int index;
	u64 until = 0;

	for (index = 0; index < COUNT; index++)
		enqueue(framework, step, policy, &framework->requests[index]);
	spin_lock(&framework->lock);
	CHECK(!nrs_dequeue(policy, &moved->item), "%s: a queued request not found", step->name);
	CHECK(nrs_dequeue(policy, &moved->item) == -ENOENT, "%s: dequeued twice", step->name);
	spin_unlock(&framework->lock);
	enqueue(framework, step, policy, moved);
	spin_lock(&framework->lock);
	for (index = 0; index < COUNT / 2 && get(policy, false, &until); index++)
		;
	spin_unlock(&framework->lock);
	CHECK(step->throttles ? until && index < COUNT / 2 : index == COUNT / 2,
	      "%s: %u requests, until %llu", step->name, index, until);
}

/* Takes out all other requests, and stops the policy. */
static void drain(struct framework *framework, const struct step *step, struct nrs_policy *policy)
{
	unsigned int index;
	u64 until;

	spin_lock(&framework->lock);
	while (get(policy, true, &until))
		;
	CHECK(!until, "%s: until %llu, with force", step->name, until);
	for (index = 0; index < COUNT; index++) {
		struct request *request = &framework->requests[index];

		if (CHECK(request->state == STARTED, "%s: request %u", step->name, index))
			nrs_finish(policy, &request->item);
	}
	spin_unlock(&framework->lock);
	nrs_policy_stop(policy);
}

/* Starts each policy while the one before has requests. */
static int run(struct framework *framework)
{
	struct nrs_policy *policy = NULL, *before;
	const struct step *step;
	ssize_t size;

	for (step = steps; step < steps + ARRAY_SIZE(steps); step++) {
		before = policy;
		policy = nrs_policy_start(framework->nrs, step->name, step->argument, NRS_HEAD_REGULAR, 0);
		if (before)
			drain(framework, step - 1, before);
		if (IS_ERR(policy))
			return PTR_ERR(policy);
		if (step->rule)
			CHECK(!nrs_framework_set(framework->nrs, "nrs_tbf_rule", step->rule), "a rule");
		use(framework, step, policy);
		size = nrs_framework_show(framework->nrs, "nrs_policies", framework->text,
					  sizeof(framework->text));
		CHECK(size == strlen(framework->text) && strstr(framework->text, step->name),
		      "%s: %zd bytes", step->name, size);
	}
	drain(framework, step - 1, policy);
	return 0;
}

int capi_policies(void)
{
	struct framework *framework = kzalloc(sizeof(*framework), GFP_KERNEL);
	int error;

	if (!framework)
		return -ENOMEM;
	spin_lock_init(&framework->lock);
	framework->nrs = nrs_framework_open("capi", 1, &capi_idle_ops, NULL);
	error = PTR_ERR_OR_ZERO(framework->nrs);
	if (!error) {
		error = run(framework);
		nrs_framework_close(framework->nrs);
	}
	kfree(framework);
	return error;
}
