/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/nrs schedules the requests of a server in user space, see Documentation/dev-nrs.md.
 * /dev/nrs-control, at the end, is for agents, which read accounts and set factors, see
 * Documentation/control.md.
 *
 * All numbers are little-endian; there is no padding.
 *
 * Extension: records and arguments state their size in bytes. A new field is appended to its
 * structure, and 0 in the field means the same as its absence. The module treats missing fields as
 * 0. It refuses a structure shorter than in version 1 (EINVAL). It accepts a structure longer than
 * its own if the rest is 0; otherwise it refuses a record with EINVAL, an argument with E2BIG. The
 * module writes at most the stated size of an argument. A record that programs read grows only for
 * files that requested it with a new flag of struct nrs_attach. Programs skip records by their
 * size, and skip records of unknown types. A change that these rules exclude gets another
 * NRS_VERSION; a module has one version and refuses all others with EPROTONOSUPPORT.
 */
#ifndef _UAPI_NRS_H
#define _UAPI_NRS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of the interface. */
#define NRS_VERSION		1

/* Largest number of records of one read or write. */
#define NRS_BATCH		256

/* Largest charge of one request, bytes. */
#define NRS_CHARGE_MAX		(1ULL << 40)

/* Longest lease, ms. */
#define NRS_LEASE_MAX		3600000

/* Value of an unknown identity. */
#define NRS_ID_ABSENT		0xffffffffU

/* struct nrs_attach.flags: every request is queued, even if the queue is empty. */
#define NRS_ATTACH_QUEUE_ALL	(1U << 0)

/* Argument of ioctl(fd, NRS_IOC_ATTACH), which makes an open file a client, once per open file. */
struct nrs_attach {
	__le32 size;		/* sizeof(struct nrs_attach) */
	__le32 version;		/* NRS_VERSION */
	__le32 flags;		/* NRS_ATTACH_* */
	__le32 lease_ms;	/* time for which a released request may keep its slot; 0: no limit */
	__le32 requests_max;	/* in: limit of the file's requests, 0: maximum; out: limit in effect */
	__le32 reserved;	/* 0 */
	char service[32];	/* name of the service, then NULs */
	char client[32];	/* name of the client, then NULs; empty: the process id */
};

/* Argument of ioctl(fd, NRS_IOC_STATS): statistics of an open file. */
struct nrs_stats {
	__le32 size;		/* sizeof(struct nrs_stats) */
	__le32 reserved;	/* 0 */
	__le64 requests;	/* accepted requests */
	__le64 passed;		/* of these, requests that were not queued */
	__le64 queued;		/* requests that a policy has queued now */
	__le64 ready;		/* released requests that are not read yet */
	__le64 running;		/* requests that were read and not completed */
	__le64 completed;	/* completed requests */
	__le64 failed;		/* of these, requests with an error */
	__le64 bytes;		/* bytes transferred by completed requests */
	__le64 refused;		/* malformed records (EINVAL) */
	__le64 duplicates;	/* requests with a cookie in use (EEXIST) */
	__le64 unknown;		/* completions of requests that are not running (ENOENT) */
	__le64 reclaimed;	/* slots revoked because the lease expired */
	__le64 late;		/* completions after the lease expired */
	__le64 forced;		/* requests that were released without a slot */
	__le64 promoted;	/* requests that were moved to high priority */
	__le64 blocked;		/* requests that had to wait for predecessors */
	__le64 over;		/* requests beyond the credits reported to their clients */
	__le64 room_waits;	/* requests for which the service had no room initially */
	__le32 peers;		/* clients with requests of this file */
	__le32 fan_out;		/* clients with requests of the service */
	__le32 credits;		/* requests that each client may have in the service */
	__le32 credits_high;	/* the same for a client with a request moved to high priority */
	__le64 early_sent;	/* early replies that were read */
	__le64 early_refused;	/* early replies suppressed because they would not help */
	__le64 early_late;	/* early replies that were not read before the deadline */
	__le64 expired;		/* requests whose deadline passed */
	__le64 reconnected;	/* reports of reconnected clients */
};

/* Without the size in the number: the size is in the argument, so that the argument may grow. */
#define NRS_IOC_ATTACH		_IO(0xbc, 1)
#define NRS_IOC_STATS		_IO(0xbc, 2)

/* Types of records. */
#define NRS_TYPE_REQUEST	1	/* written */
#define NRS_TYPE_COMPLETION	2	/* written */
#define NRS_TYPE_RELEASED	3	/* read */
#define NRS_TYPE_PROMOTE	4	/* written */
#define NRS_TYPE_EARLY		5	/* read */
#define NRS_TYPE_RECOVERED	6	/* read */
#define NRS_TYPE_BUSY		7	/* written */
#define NRS_TYPE_RECONNECT	8	/* written */

/* Start of each record. */
struct nrs_header {
	__le16 kind;		/* NRS_TYPE_* */
	__le16 size;		/* bytes of the whole record */
	__le32 flags;
};

/* struct nrs_request.header.flags */
#define NRS_REQUEST_HIGH	(1U << 0)	/* uses the high-priority head */
#define NRS_REQUEST_CHARGE	(1U << 1)	/* is charged for .charge bytes instead of .length */

/* Networks, numbered as in Lustre's wire protocol. */
#define NRS_NET_NONE		0
#define NRS_NET_TCP		2
#define NRS_NET_O2IB		5
#define NRS_NET_LO		9
#define NRS_NET_GNI		13
#define NRS_NET_GIP		14
#define NRS_NET_PTLF		15
#define NRS_NET_KFI		16

/* A request to be scheduled. */
struct nrs_request {
	struct nrs_header header;
	__le64 cookie;		/* identifies the request; unique among uncompleted requests */
	__le64 object;		/* object that contains the range */
	__le64 offset;		/* first byte of the range */
	__le64 length;		/* length of the range, bytes */
	__le64 charge;		/* cost, bytes, with NRS_REQUEST_CHARGE; else 0 */
	__le32 opcode;		/* RPC number of the operation, as in Lustre's wire protocol */
	__le32 uid;		/* ids in the initial user namespace, or NRS_ID_ABSENT */
	__le32 gid;
	__le32 projid;
	__le32 nodemap;
	__u8 net;		/* NRS_NET_* of the client's network identifier */
	__u8 address_len;	/* 16 for IPv6, else 4; 0 without a network */
	__le16 net_number;	/* number of the network */
	__u8 address[16];	/* most significant byte first, then 0 */
	__u8 jobid[32];		/* up to 31 bytes, then NULs */
	__le64 stream;		/* related requests have the same stream; 0: none */
	__le64 predecessor[8];	/* cookies of requests that must complete first, 0: none */
	__le32 job_size;	/* nodes of the job, 0: unknown */
	__le32 target;		/* target of the server */
	__le32 timeout_ms;	/* timeout of the client, from arrival; 0: unknown */
	__le32 elapsed_ms;	/* time since arrival */
};

/* End of a request, which was served or abandoned. */
struct nrs_completion {
	struct nrs_header header;
	__le64 cookie;
	__le32 status;		/* 0 or a positive errno */
	__le32 reserved;	/* 0 */
	__le64 bytes;		/* bytes transferred */
};

/* Moves a request, and the requests that must complete first, to high priority. */
struct nrs_promotion {
	struct nrs_header header;
	__le64 cookie;
};

/* struct nrs_released.header.flags */
#define NRS_RELEASED_PASSED	(1U << 0)	/* was not queued, because the queue was empty */
#define NRS_RELEASED_FORCED	(1U << 1)	/* has no slot: the service was drained */
#define NRS_RELEASED_EXPIRED	(1U << 2)	/* its deadline has passed: the client has given up */

/* Dispatch of a request to the server. */
struct nrs_released {
	struct nrs_header header;
	__le64 cookie;
	__le64 wait_ns;		/* time in the queue */
	__le32 credits;		/* requests that the client may have in the service now */
	__le32 fan_out;		/* clients with requests in the service now */
	__le32 estimate_ms;	/* worst service time now, for replies */
	__le32 left_ms;		/* time until the deadline; 0: no deadline, or passed */
};

/* struct nrs_early.header.flags */
#define NRS_EARLY_AT_ONCE	(1U << 0)	/* the client's timeout is below the estimate */
#define NRS_EARLY_BUSY		(1U << 1)	/* the server reported that it is busy */

/* Request for an early reply: the client should extend its timeout. */
struct nrs_early {
	struct nrs_header header;
	__le64 cookie;
	__le32 timeout_ms;	/* total timeout for the client, from arrival */
	__le32 estimate_ms;	/* worst service time now */
};

/* End of recovery: all expected clients have reconnected, or will not. */
struct nrs_recovered {
	struct nrs_header header;
	__le32 clients;		/* reports of reconnected clients */
	__le32 largest_ms;	/* largest timeout of these clients */
};

/* Extends the time of a request that was read, from now. */
struct nrs_busy {
	struct nrs_header header;
	__le64 cookie;
	__le32 extra_ms;	/* 1 to NRS_LEASE_MAX */
	__le32 reserved;	/* 0 */
};

/* Report of a client that has reconnected after a restart of the server. */
struct nrs_reconnect {
	struct nrs_header header;
	__u8 net;		/* as in struct nrs_request */
	__u8 address_len;
	__le16 net_number;
	__u8 address[16];
	__le32 timeout_ms;	/* timeout of its requests; 0: unknown */
};

/*
 * The rest is the binary format of /dev/nrs-control. The head of the accounts states the size of a
 * record, so that fields can be appended. Programs ignore unknown flags.
 */

/* A factor of 1. */
#define NRS_FACTOR_ONE		(1U << 31)

/* Largest number of factors of one command. */
#define NRS_FACTORS_MAX		16384

/* Longest lease of factors, ms. */
#define NRS_FACTORS_LEASE_MAX	60000

/* Start of the reply to "accounts"; struct nrs_account records follow. */
struct nrs_accounts {
	__le32 record_size;	/* bytes of one record */
	__le32 count;		/* number of records */
	__le64 instance;	/* scope of the ids; changes with each start of the policy; never 0 */
	__le64 time_ns;		/* time of reading the accounts, CLOCK_MONOTONIC */
	__le64 terms;		/* hash of mode and cost model; per service with cgroup; 0: no accounts */
};

/* struct nrs_account.flags */
#define NRS_ACCOUNT_LEAF	(1U << 0)	/* has its own requests, and no children */
#define NRS_ACCOUNT_ACTIVE	(1U << 1)	/* has requests, queued or in service */
#define NRS_ACCOUNT_WAITING	(1U << 2)	/* has queued requests */
#define NRS_ACCOUNT_GONE	(1U << 3)	/* last record of a removed entity */

/* Service of one entity or group of entities. */
struct nrs_account {
	__le64 id;
	__le64 parent;		/* group of the entity; 0: none */
	__le64 service;		/* service so far, units of cost; of a group: what no other record counts */
	__le32 weight;		/* among siblings, without the factor; 4096 for a weight of 1 */
	__le32 flags;		/* NRS_ACCOUNT_* */
	__le32 factor;		/* in effect, units of 2^-31 */
	__le32 level;		/* 0: outermost */
};

/* A factor, after the first line of "factors". */
struct nrs_factor {
	__le64 id;
	__le32 factor;		/* factor of the weight, units of 2^-31: 1 to NRS_FACTOR_ONE */
	__le32 reserved;	/* 0 */
};

#endif /* _UAPI_NRS_H */
