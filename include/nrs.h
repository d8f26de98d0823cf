/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of kernel modules, scheduled by nrs. Documentation/kernel-servers.md has a guide with an example.
 *
 * A server that has threads and a protocol, but no scheduler, hands its requests to a service of nrs and is called when one
 * of them is to be served: struct nrs_server. It says of them what a server in user space says (uapi/nrs.h).
 *
 * A framework that queues requests by policies of its own drives policies of nrs as if they were such: struct nrs_framework.
 * nrs dispatches nothing then.
 *
 * Either way the service is one like others: its parameters and statistics are in debugfs and in nrsctl.
 */
#ifndef _NRS_H
#define _NRS_H

#include <linux/module.h>
#include <linux/types.h>

#include "uapi/nrs.h"

/* The version of this interface; a module that was built for another one is refused with -EPROTONOSUPPORT. */
#define NRS_KERNEL_VERSION	1

/* A struct nrs_request of which nothing is known. */
#define NRS_REQUEST_INIT {							\
	.header = {								\
		.kind = cpu_to_le16(NRS_TYPE_REQUEST),				\
		.size = cpu_to_le16(sizeof(struct nrs_request)),		\
	},									\
	.uid = cpu_to_le32(NRS_ID_ABSENT),					\
	.gid = cpu_to_le32(NRS_ID_ABSENT),					\
	.projid = cpu_to_le32(NRS_ID_ABSENT),					\
	.nodemap = cpu_to_le32(NRS_ID_ABSENT),					\
}

/* A struct nrs_attach that makes CLIENT a client of SERVICE, both at most 31 characters. */
#define NRS_ATTACH_INIT(SERVICE, CLIENT) {					\
	.size = cpu_to_le32(sizeof(struct nrs_attach)),				\
	.version = cpu_to_le32(NRS_VERSION),					\
	.service = SERVICE,							\
	.client = CLIENT,							\
}

struct nrs_server;
struct nrs_framework;
struct nrs_policy;

/**
 * struct nrs_server_ops - what nrs tells a server
 * @dispatch: a request that was submitted is to be served now; the server calls nrs_complete() for it, now or later
 * @early: the client of a request is to be told to wait for longer; may be NULL. The request may have been completed
 *	meanwhile: its cookie is to be looked up among those of the server, not followed as a pointer.
 * @recovered: no client is expected to come back any more; may be NULL
 *
 * Context: a work item of nrs, one call at a time for a server. A call may sleep, but must not wait for a request of the
 * server. Records are valid during the call.
 */
struct nrs_server_ops {
	void (*dispatch)(void *context, const struct nrs_released *request);
	void (*early)(void *context, const struct nrs_early *reply);
	void (*recovered)(void *context, const struct nrs_recovered *end);
};

struct nrs_server *__nrs_server_open(u32 version, struct module *owner, const struct nrs_attach *attach,
				     const struct nrs_server_ops *ops, void *context);

/**
 * nrs_server_open - make a server the client of a service
 * @attach: names service and client, as NRS_IOC_ATTACH does; @attach->requests_max bounds the requests of the server, and so
 *	does the module parameter user_requests_max
 * @ops: what the server is told; stays until nrs_server_close()
 * @context: passed with each call of @ops
 *
 * Context: may sleep.
 * Return: the server, to be closed by nrs_server_close(), or an ERR_PTR:
 * -EINVAL (@attach is malformed, or @ops has no dispatch), -EBUSY (the service has clients of another kind),
 * -ENOSPC (too many services or clients), -EPROTONOSUPPORT, -ENOMEM.
 */
static inline struct nrs_server *nrs_server_open(const struct nrs_attach *attach, const struct nrs_server_ops *ops,
						 void *context)
{
	return __nrs_server_open(NRS_KERNEL_VERSION, THIS_MODULE, attach, ops, context);
}

/**
 * nrs_server_close - end a server
 * @server: from nrs_server_open(); gone afterwards
 *
 * Dispatches all that is queued, whatever the policy says, and waits until each request is completed. The caller submits
 * nothing meanwhile, and completes nothing but what was dispatched. No call of ops is running or to come when this returns.
 *
 * Context: may sleep.
 */
void nrs_server_close(struct nrs_server *server);

/**
 * nrs_server_write - hand a record to a service
 * @server: from nrs_server_open()
 * @record: what a server in user space writes: struct nrs_request, nrs_completion, nrs_promotion, nrs_busy, nrs_reconnect
 * @wait: whether a request may wait for room
 *
 * Context: may sleep; for a struct nrs_completion any context.
 * Return: 0, or as write(2) of /dev/nrs: -EINVAL (malformed), -EEXIST (the cookie is in use), -ENOENT (no such request),
 * -EAGAIN (no room, and not @wait), -ENOMEM, -ERESTARTSYS (a signal came while waiting),
 * -ENODEV (a request of a module that is being removed).
 */
int nrs_server_write(struct nrs_server *server, const struct nrs_header *record, bool wait);

/**
 * nrs_submit - hand a request to a service
 * @server: from nrs_server_open()
 * @request: the request; copied. Its cookie names it until it is completed: most servers use a pointer.
 * @wait: whether to wait for room
 *
 * The module of @server stays loaded until the request is completed.
 *
 * Context: may sleep.
 * Return: as nrs_server_write(). With 0, ops->dispatch() is called once, perhaps before this returns.
 */
static inline int nrs_submit(struct nrs_server *server, const struct nrs_request *request, bool wait)
{
	return nrs_server_write(server, &request->header, wait);
}

/**
 * nrs_complete - end a request that was dispatched
 * @server: from nrs_server_open()
 * @cookie: of the request
 * @status: 0 or a positive errno
 * @bytes: bytes transferred
 *
 * Context: any.
 * Return: 0, or -ENOENT: no request with this cookie was dispatched and not completed.
 */
static inline int nrs_complete(struct nrs_server *server, u64 cookie, u32 status, u64 bytes)
{
	struct nrs_completion record = {
		.header = {
			.kind = cpu_to_le16(NRS_TYPE_COMPLETION),
			.size = cpu_to_le16(sizeof(record)),
		},
		.cookie = cpu_to_le64(cookie),
		.status = cpu_to_le32(status),
		.bytes = cpu_to_le64(bytes),
	};

	return nrs_server_write(server, &record.header, false);
}

/**
 * nrs_server_stats - what a server has done
 * @server: from nrs_server_open()
 * @stats: filled in
 *
 * Context: any.
 */
void nrs_server_stats(struct nrs_server *server, struct nrs_stats *stats);

/* The two heads of a partition. */
enum nrs_head {
	NRS_HEAD_REGULAR,
	NRS_HEAD_HIGH,
};

/* Words of a struct nrs_item. */
#define NRS_ITEM_WORDS		48

/**
 * struct nrs_item - what nrs keeps of a request, in memory of the framework
 *
 * Idle, queued or started. An idle item may be freed, and used again; its memory need not be initialised for nrs_enqueue().
 */
struct nrs_item {
	/* private: */
	u64 words[NRS_ITEM_WORDS];
};

/**
 * struct nrs_framework_ops - what nrs tells a framework
 * @wake: requests that were withheld may be served now, of any policy: rates or shares have changed, and what nrs_get() said
 *	of @until does not hold any more
 *
 * Context of @wake: a task, which must not sleep; also within nrs_framework_open(), nrs_framework_set(), nrs_policy_start()
 * and nrs_policy_stop(). It may take the spinlock that the framework holds over nrs_get(): then no call is lost between
 * nrs_get() and what the framework notes of its answer.
 */
struct nrs_framework_ops {
	void (*wake)(void *context);
};

struct nrs_framework *__nrs_framework_open(u32 version, struct module *owner, const char *service, unsigned int cpts,
					   const struct nrs_framework_ops *ops, void *context);

/**
 * nrs_framework_open - have a framework drive the policies of a service
 * @service: name of the service: letters, digits and ``_ - . :``, at most 31
 * @cpts: partitions that the framework has
 * @ops: what the framework is told; stays until nrs_framework_close()
 * @context: passed with each call of @ops
 *
 * Parameters that an administrator has set of the service are in force.
 *
 * Context: may sleep.
 * Return: the framework, to be closed by nrs_framework_close(), or an ERR_PTR:
 * -EINVAL (no name, no wake, or @cpts is 0, more than there are CPUs, more than 63, or another number than the service has),
 * -EBUSY (the service has clients), -ENOSPC (too many services), -EPROTONOSUPPORT, -ENOMEM.
 */
static inline struct nrs_framework *nrs_framework_open(const char *service, unsigned int cpts,
						       const struct nrs_framework_ops *ops, void *context)
{
	return __nrs_framework_open(NRS_KERNEL_VERSION, THIS_MODULE, service, cpts, ops, context);
}

/**
 * nrs_framework_close - end a framework
 * @framework: from nrs_framework_open(); gone afterwards. All its policies are stopped.
 *
 * Context: may sleep.
 */
void nrs_framework_close(struct nrs_framework *framework);

/**
 * nrs_framework_set - set a parameter of the service
 * @framework: from nrs_framework_open()
 * @name: of the parameter, as in debugfs
 * @value: the text that would be written there
 *
 * Context: may sleep.
 * Return: 0, -ENOENT (no such parameter), -EACCES (it cannot be written), -E2BIG (@value is too long), or what the parameter
 * refuses, mostly -EINVAL; the reason is in the kernel log.
 */
int nrs_framework_set(struct nrs_framework *framework, const char *name, const char *value);

/**
 * nrs_framework_show - read a parameter or statistics of the service
 * @framework: from nrs_framework_open()
 * @name: of the parameter, as in debugfs
 * @buf: for the text, which is ended by a NUL
 * @size: bytes of @buf
 *
 * Context: may sleep.
 * Return: bytes of the text, -ENOENT (no such parameter), -EACCES (it cannot be read), -ENOSPC (@buf is too small).
 */
ssize_t nrs_framework_show(struct nrs_framework *framework, const char *name, char *buf, size_t size);

/**
 * nrs_policy_start - start a policy of a head
 * @framework: from nrs_framework_open()
 * @name: of the policy
 * @argument: of the policy, or NULL
 * @head: the head
 * @cpt: the partition, below @cpts of nrs_framework_open()
 *
 * nrs runs a policy with the same argument in all partitions, from the first start on; a policy that was started before has
 * to be drained by the framework, and nrs_enqueue() may refuse what it is told of that one. In a head of a partition each
 * policy is started once: to start it with another argument, it is stopped first. The module of @framework stays loaded
 * until the policy is stopped.
 *
 * Context: may sleep.
 * Return: the policy, to be stopped by nrs_policy_stop(), or an ERR_PTR:
 * -ENOENT (no such policy or partition), -EINVAL (the argument is not one), -EBUSY (the head has this policy),
 * -EAGAIN (earlier policies are still stopping), -ENODEV (the module of the framework is being removed), -ENOMEM.
 */
struct nrs_policy *nrs_policy_start(struct nrs_framework *framework, const char *name, const char *argument,
				    enum nrs_head head, unsigned int cpt);

/**
 * nrs_policy_stop - stop a policy of a head
 * @policy: from nrs_policy_start(), without items that are queued or started; gone afterwards
 *
 * Context: may sleep.
 */
void nrs_policy_stop(struct nrs_policy *policy);

/**
 * nrs_enqueue - queue a request
 * @policy: from nrs_policy_start()
 * @item: idle; with 0 queued afterwards, and not to be moved or freed
 * @request: what is known of the request, as a server in user space says it; cookie, stream, predecessors, timeout and
 *	NRS_REQUEST_HIGH are not looked at. Not used after the call.
 *
 * Calls for one partition are serialised by the framework: nrs_enqueue(), nrs_get(), nrs_peek(), nrs_dequeue(), nrs_finish().
 * After nrs_enqueue() and nrs_dequeue() a request may be served though nrs_get() said of an @until that is later.
 *
 * Context: any; never sleeps or allocates.
 * Return: 0, -EINVAL (@request is malformed), -EAGAIN (the policy does not take it: another one is to).
 */
int nrs_enqueue(struct nrs_policy *policy, struct nrs_item *item, const struct nrs_request *request);

/**
 * nrs_get - take the request out that is served next
 * @policy: from nrs_policy_start()
 * @force: serve one that the policy would withhold, too
 * @until: filled in: if there is none, 0 if nothing is queued, else when one may be served (CLOCK_MONOTONIC, ns)
 *
 * Context: as nrs_enqueue().
 * Return: the item, which is started now, until nrs_finish(); NULL: none. With @force only if none is queued.
 */
struct nrs_item *nrs_get(struct nrs_policy *policy, bool force, u64 *until);

/**
 * nrs_peek - whether nrs_get() would return a request
 * @policy: from nrs_policy_start()
 * @force: as for nrs_get()
 * @until: as for nrs_get()
 *
 * A policy with rates (tbf, qbm) may still find in nrs_get() that all is withheld.
 *
 * Context: as nrs_enqueue().
 * Return: whether there is one.
 */
bool nrs_peek(struct nrs_policy *policy, bool force, u64 *until);

/**
 * nrs_dequeue - take a request back
 * @policy: the one that has it
 * @item: was queued; idle afterwards
 *
 * To move a request, the framework queues it again, which counts as another arrival.
 *
 * Context: as nrs_enqueue().
 * Return: 0, -ENOENT: it is not queued any more.
 */
int nrs_dequeue(struct nrs_policy *policy, struct nrs_item *item);

/**
 * nrs_finish - count the end of a request
 * @policy: the one that nrs_get() was called for
 * @item: started; idle afterwards
 *
 * Context: as nrs_enqueue().
 */
void nrs_finish(struct nrs_policy *policy, struct nrs_item *item);

#endif /* _NRS_H */
