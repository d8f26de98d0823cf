/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nrs for kernel modules. Documentation/kernel-servers.md is a guide with an example.
 *
 * A server with threads and a protocol, but without a scheduler, submits its requests to a service
 * of nrs and is called when a request is dispatched: struct nrs_server. The records are those of a
 * server in user space (uapi/nrs.h).
 *
 * A framework that queues requests by its own policies drives policies of nrs as if they were its
 * own: struct nrs_framework. Then nrs dispatches nothing.
 *
 * In both cases debugfs and nrsctl show the parameters and statistics of the service.
 */
#ifndef _NRS_H
#define _NRS_H

#include <linux/module.h>
#include <linux/types.h>

#include "uapi/nrs.h"

/* Version of this interface; a module built for another one is refused with -EPROTONOSUPPORT. */
#define NRS_KERNEL_VERSION	1

/* Initialiser of a struct nrs_request without attributes. */
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

/* Initialiser of a struct nrs_attach for CLIENT of SERVICE, both at most 31 characters. */
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
 * struct nrs_server_ops - callbacks of a server
 * @dispatch: serves a dispatched request; the server calls nrs_complete() for the request, in this
 *	call or later
 * @early: sends the client of a request a longer timeout; may be NULL. The request may have been
 *	completed meanwhile: the server must look its cookie up and must not dereference it.
 * @recovered: ends recovery, because no client is expected to reconnect; may be NULL
 *
 * Context: a work item of nrs, one call at a time for a server. A call may sleep, but must not wait
 * for a request of the server. Records are valid during the call.
 */
struct nrs_server_ops {
	void (*dispatch)(void *context, const struct nrs_released *request);
	void (*early)(void *context, const struct nrs_early *reply);
	void (*recovered)(void *context, const struct nrs_recovered *end);
};

struct nrs_server *__nrs_server_open(u32 version, struct module *owner,
				     const struct nrs_attach *attach,
				     const struct nrs_server_ops *ops, void *context);

/**
 * nrs_server_open() - Makes a server a client of a service
 * @attach: names of the service and the client, as for NRS_IOC_ATTACH; @attach->requests_max and
 *	the module parameter user_requests_max limit the requests of the server
 * @ops: callbacks; must stay valid until nrs_server_close()
 * @context: passed with each call of @ops
 *
 * Context: may sleep.
 * Return: the server, to be closed by nrs_server_close(), or an ERR_PTR:
 * -EINVAL (@attach is malformed, or @ops has no dispatch), -EBUSY (the service has clients of
 * another kind), -ENOSPC (too many services or clients), -EPROTONOSUPPORT, -ENOMEM.
 */
static inline struct nrs_server *nrs_server_open(const struct nrs_attach *attach,
						 const struct nrs_server_ops *ops, void *context)
{
	return __nrs_server_open(NRS_KERNEL_VERSION, THIS_MODULE, attach, ops, context);
}

/**
 * nrs_server_close() - Ends a server
 * @server: from nrs_server_open(); freed by the call
 *
 * Dispatches all queued requests, regardless of the policy, and waits until each is completed.
 * Meanwhile the caller submits no requests, and completes only dispatched ones. When the function
 * returns, no call of ops is running or will follow.
 *
 * Context: may sleep.
 */
void nrs_server_close(struct nrs_server *server);

/**
 * nrs_server_write() - Writes a record to a service
 * @server: from nrs_server_open()
 * @record: as written by a server in user space: struct nrs_request, nrs_completion, nrs_promotion,
 *	nrs_busy, nrs_reconnect
 * @wait: true if a request may wait for room
 *
 * Context: may sleep; for a struct nrs_completion any context.
 * Return: 0, or as write(2) of /dev/nrs: -EINVAL (malformed), -EEXIST (the cookie is in use),
 * -ENOENT (no such request), -EAGAIN (no room, and not @wait), -ENOMEM, -ERESTARTSYS (interrupted
 * by a signal while waiting), -ENODEV (a request of a module that is being removed).
 */
int nrs_server_write(struct nrs_server *server, const struct nrs_header *record, bool wait);

/**
 * nrs_submit() - Submits a request to a service
 * @server: from nrs_server_open()
 * @request: the request; copied. The cookie identifies the request until it is completed: most
 *	servers use a pointer.
 * @wait: true to wait for room
 *
 * The module of @server stays loaded until the request is completed.
 *
 * Context: may sleep.
 * Return: as nrs_server_write(). With 0, ops->dispatch() is called once, possibly before this
 * returns.
 */
static inline int nrs_submit(struct nrs_server *server, const struct nrs_request *request,
			     bool wait)
{
	return nrs_server_write(server, &request->header, wait);
}

/**
 * nrs_complete() - Ends a dispatched request
 * @server: from nrs_server_open()
 * @cookie: cookie of the request
 * @status: 0 or a positive errno
 * @bytes: bytes transferred
 *
 * Context: any.
 * Return: 0, or -ENOENT: there is no request with this cookie that was dispatched and not
 * completed.
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
 * nrs_server_stats() - Returns the statistics of a server
 * @server: from nrs_server_open()
 * @stats: filled in
 *
 * Context: any.
 */
void nrs_server_stats(struct nrs_server *server, struct nrs_stats *stats);

/* Heads of a partition. */
enum nrs_head {
	NRS_HEAD_REGULAR,
	NRS_HEAD_HIGH,
};

/* Size of a struct nrs_item, 64-bit words. */
#define NRS_ITEM_WORDS		48

/**
 * struct nrs_item - data of nrs for a request, in memory of the framework
 *
 * An item is idle, queued or started. An idle item may be freed or used again; its memory need not
 * be initialised for nrs_enqueue().
 */
struct nrs_item {
	/* private: */
	u64 words[NRS_ITEM_WORDS];
};

/**
 * struct nrs_framework_ops - callbacks of a framework
 * @wake: reports that throttled requests of any policy may be eligible: rates or shares have
 *	changed, and the last @until of nrs_get() is invalid
 *
 * Context of @wake: a task, which must not sleep; also within nrs_framework_open(),
 * nrs_framework_set(), nrs_policy_start() and nrs_policy_stop(). The callback may take the spinlock
 * that the framework holds around nrs_get(). Then no wake is lost between nrs_get() and recording
 * its result.
 */
struct nrs_framework_ops {
	void (*wake)(void *context);
};

struct nrs_framework *__nrs_framework_open(u32 version, struct module *owner, const char *service,
					   unsigned int cpts, const struct nrs_framework_ops *ops,
					   void *context);

/**
 * nrs_framework_open() - Opens a service whose policies a framework drives
 * @service: name of the service: letters, digits and ``_ - . :``, at most 31
 * @cpts: number of partitions of the framework
 * @ops: callbacks; must stay valid until nrs_framework_close()
 * @context: passed with each call of @ops
 *
 * Parameters that an administrator has set for the service are in effect.
 *
 * Context: may sleep.
 * Return: the framework, to be closed by nrs_framework_close(), or an ERR_PTR:
 * -EINVAL (no name, no wake, or @cpts is 0, above the number of CPUs, above 63, or not the number
 * of partitions of the service), -EBUSY (the service has clients), -ENOSPC (too many services),
 * -EPROTONOSUPPORT, -ENOMEM.
 */
static inline struct nrs_framework *nrs_framework_open(const char *service, unsigned int cpts,
						       const struct nrs_framework_ops *ops, void *context)
{
	return __nrs_framework_open(NRS_KERNEL_VERSION, THIS_MODULE, service, cpts, ops, context);
}

/**
 * nrs_framework_close() - Ends a framework
 * @framework: from nrs_framework_open(), with all policies stopped; freed by the call
 *
 * Context: may sleep.
 */
void nrs_framework_close(struct nrs_framework *framework);

/**
 * nrs_framework_set() - Sets a parameter of the service
 * @framework: from nrs_framework_open()
 * @name: name of the parameter in debugfs
 * @value: value, as written to debugfs
 *
 * Context: may sleep.
 * Return: 0, -ENOENT (no such parameter), -EACCES (read-only), -E2BIG (@value is too long), or the
 * errno of the parameter, usually -EINVAL; the kernel log has the reason.
 */
int nrs_framework_set(struct nrs_framework *framework, const char *name, const char *value);

/**
 * nrs_framework_show() - Reads a parameter or statistics of the service
 * @framework: from nrs_framework_open()
 * @name: name of the parameter in debugfs
 * @buf: filled in with a NUL-terminated text
 * @size: size of @buf, bytes
 *
 * Context: may sleep.
 * Return: length of the text, bytes, -ENOENT (no such parameter), -EACCES (write-only), -ENOSPC
 * (@buf is too small).
 */
ssize_t nrs_framework_show(struct nrs_framework *framework, const char *name, char *buf,
			   size_t size);

/**
 * nrs_policy_start() - Starts a policy of a head
 * @framework: from nrs_framework_open()
 * @name: name of the policy
 * @argument: argument of the policy, or NULL
 * @head: head of the partition
 * @cpt: index of the partition, below @cpts of nrs_framework_open()
 *
 * nrs runs a policy with the same argument in all partitions, from the first start on. The
 * framework has to drain the policy started before, for which nrs_enqueue() may refuse requests. A
 * head of a partition has each policy at most once: to change the argument, stop the policy first.
 * The module of @framework stays loaded until the policy is stopped.
 *
 * Context: may sleep.
 * Return: the policy, to be stopped by nrs_policy_stop(), or an ERR_PTR:
 * -ENOENT (no such policy or partition), -EINVAL (invalid argument), -EBUSY (the head has this
 * policy), -EAGAIN (earlier policies are still stopping), -ENODEV (the module of the framework is
 * being removed), -ENOMEM.
 */
struct nrs_policy *nrs_policy_start(struct nrs_framework *framework, const char *name,
				    const char *argument, enum nrs_head head, unsigned int cpt);

/**
 * nrs_policy_stop() - Stops a policy of a head
 * @policy: from nrs_policy_start(), without queued or started items; freed by the call
 *
 * Context: may sleep.
 */
void nrs_policy_stop(struct nrs_policy *policy);

/**
 * nrs_enqueue() - Queues a request
 * @policy: from nrs_policy_start()
 * @item: idle; if 0 is returned, queued, and must not be moved or freed
 * @request: attributes of the request, as set by a server in user space; cookie, stream,
 *	predecessors, timeout and NRS_REQUEST_HIGH are ignored. Not used after the call.
 *
 * The framework serialises the calls for a partition: nrs_enqueue(), nrs_get(), nrs_peek(),
 * nrs_dequeue(), nrs_finish(). After nrs_enqueue() and nrs_dequeue() a request may be eligible
 * before the last @until of nrs_get().
 *
 * Context: any; never sleeps or allocates.
 * Return: 0, -EINVAL (@request is malformed), -EAGAIN (the policy refuses the request: another
 * policy has to take it).
 */
int nrs_enqueue(struct nrs_policy *policy, struct nrs_item *item,
		const struct nrs_request *request);

/**
 * nrs_get() - Removes the next eligible request from the queue
 * @policy: from nrs_policy_start()
 * @force: true to return a throttled request if there is no eligible one
 * @until: filled in if NULL is returned: 0 if no request is queued, else the time from which a
 *	request is eligible (CLOCK_MONOTONIC, ns)
 *
 * Context: as nrs_enqueue().
 * Return: the item, now started, until nrs_finish(), or NULL. With @force, NULL only if no request
 * is queued.
 */
struct nrs_item *nrs_get(struct nrs_policy *policy, bool force, u64 *until);

/**
 * nrs_peek() - Returns true if nrs_get() would return a request
 * @policy: from nrs_policy_start()
 * @force: as for nrs_get()
 * @until: as for nrs_get()
 *
 * For a policy with rates (tbf, qbm), nrs_get() may nevertheless find all requests throttled.
 *
 * Context: as nrs_enqueue().
 * Return: true if there is such a request.
 */
bool nrs_peek(struct nrs_policy *policy, bool force, u64 *until);

/**
 * nrs_dequeue() - Removes a queued request
 * @policy: policy that queued the request
 * @item: was queued; idle after the call
 *
 * To move a request, the framework queues it again, which counts as another arrival.
 *
 * Context: as nrs_enqueue().
 * Return: 0, or -ENOENT: the request is no longer queued.
 */
int nrs_dequeue(struct nrs_policy *policy, struct nrs_item *item);

/**
 * nrs_finish() - Counts the end of a request
 * @policy: policy for which nrs_get() was called
 * @item: started; idle after the call
 *
 * Context: as nrs_enqueue().
 */
void nrs_finish(struct nrs_policy *policy, struct nrs_item *item);

#endif /* _NRS_H */
