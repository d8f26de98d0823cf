/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/nrs: a server in user space has its requests scheduled. Documentation/dev-nrs.md tells how.
 * /dev/nrs-control: an agent reads accounts and sets factors, at the end. Documentation/control.md tells how.
 *
 * All numbers are little-endian; there is no padding.
 *
 * Extension: records and arguments state their size in bytes. A new field is appended to its
 * structure, and 0 in the field means what its absence meant before. The module takes a structure
 * that ends before the field as if the field were 0; it refuses a structure that is shorter than
 * in version 1 (EINVAL). A structure that is longer than the module knows is taken if the rest is
 * 0, and refused otherwise: a record with EINVAL, an argument with E2BIG. The module writes no more
 * of an argument than the program stated, and a record that is read grows only for files that asked
 * with a new flag of struct nrs_attach. A program steps over records by their size, and over types
 * that it does not know. A change that these rules exclude gets another NRS_VERSION; a module has
 * one version and refuses all others with EPROTONOSUPPORT.
 */
#ifndef _UAPI_NRS_H
#define _UAPI_NRS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The version of the interface. */
#define NRS_VERSION		1

/* Records that one read or write takes, at most. */
#define NRS_BATCH		256

/* Bytes that one request may be charged for, at most. */
#define NRS_CHARGE_MAX		(1ULL << 40)

/* Longest lease, ms. */
#define NRS_LEASE_MAX		3600000

/* An identity that is not known. */
#define NRS_ID_ABSENT		0xffffffffU

/* struct nrs_attach.flags: every request queues, even when nobody waits. */
#define NRS_ATTACH_QUEUE_ALL	(1U << 0)

/* Makes an open file a client of a service: ioctl(fd, NRS_IOC_ATTACH, struct nrs_attach *), once per open file. */
struct nrs_attach {
	__le32 size;		/* sizeof(struct nrs_attach) */
	__le32 version;		/* NRS_VERSION */
	__le32 flags;		/* NRS_ATTACH_* */
	__le32 lease_ms;	/* how long a released request may keep its slot; 0: for ever */
	__le32 requests_max;	/* in: requests the file may have, 0: as many as allowed; out: how many it may */
	__le32 reserved;	/* 0 */
	char service[32];	/* name of the service, then NULs */
	char client[32];	/* name of the client, then NULs; empty: the number of the process */
};

/* What an open file has done: ioctl(fd, NRS_IOC_STATS, struct nrs_stats *). */
struct nrs_stats {
	__le32 size;		/* sizeof(struct nrs_stats) */
	__le32 reserved;	/* 0 */
	__le64 requests;	/* requests that were taken */
	__le64 passed;		/* of these, those that did not queue */
	__le64 queued;		/* requests that a policy withholds now */
	__le64 ready;		/* requests that are released and not read */
	__le64 running;		/* requests that were read and not completed */
	__le64 completed;	/* requests that were completed */
	__le64 failed;		/* of these, those with an error */
	__le64 bytes;		/* bytes transferred by those */
	__le64 refused;		/* malformed records (EINVAL) */
	__le64 duplicates;	/* requests with a cookie that is in use (EEXIST) */
	__le64 unknown;		/* completions of what is not running (ENOENT) */
	__le64 reclaimed;	/* slots taken away because the lease was over */
	__le64 late;		/* completions after that */
	__le64 forced;		/* requests that were sent out without a slot */
	__le64 promoted;	/* requests that were moved to high priority */
	__le64 blocked;		/* requests that had to wait for others that come before them */
	__le64 over;		/* requests beyond what their clients were told that they may have */
	__le64 room_waits;	/* requests for which the service had no room at first */
	__le32 peers;		/* clients with requests, of this file */
	__le32 fan_out;		/* clients with requests, of the service */
	__le32 credits;		/* requests that each of them may have in the service */
	__le32 credits_high;	/* the same for one whose request was moved to high priority */
	__le64 early_sent;	/* early replies that were read */
	__le64 early_refused;	/* early replies that would not have helped, so that there was none */
	__le64 early_late;	/* early replies that were not read before the deadline */
	__le64 expired;		/* requests whose deadline passed */
	__le64 reconnected;	/* reports of clients that came back */
};

/* Only the numbers: the size is in the argument, so that it may grow. */
#define NRS_IOC_ATTACH		_IO(0xbc, 1)
#define NRS_IOC_STATS		_IO(0xbc, 2)

/* What a record is. */
#define NRS_TYPE_REQUEST	1	/* written */
#define NRS_TYPE_COMPLETION	2	/* written */
#define NRS_TYPE_RELEASED	3	/* read */
#define NRS_TYPE_PROMOTE	4	/* written */
#define NRS_TYPE_EARLY		5	/* read */
#define NRS_TYPE_RECOVERED	6	/* read */
#define NRS_TYPE_BUSY		7	/* written */
#define NRS_TYPE_RECONNECT	8	/* written */

/* How each record starts. */
struct nrs_header {
	__le16 kind;		/* NRS_TYPE_* */
	__le16 size;		/* bytes of the whole record */
	__le32 flags;
};

/* struct nrs_request.header.flags */
#define NRS_REQUEST_HIGH	(1U << 0)	/* goes through the high-priority head */
#define NRS_REQUEST_CHARGE	(1U << 1)	/* is charged for .charge bytes instead of .length */

/* Networks, by the numbers that Lustre's wire protocol gives them. */
#define NRS_NET_NONE		0
#define NRS_NET_TCP		2
#define NRS_NET_O2IB		5
#define NRS_NET_LO		9
#define NRS_NET_GNI		13
#define NRS_NET_GIP		14
#define NRS_NET_PTLF		15
#define NRS_NET_KFI		16

/* A request that wants to be served. */
struct nrs_request {
	struct nrs_header header;
	__le64 cookie;		/* names it; unique among those that are not completed */
	__le64 object;		/* what the range is in */
	__le64 offset;		/* first byte of the range */
	__le64 length;		/* bytes of the range */
	__le64 charge;		/* bytes it costs, with NRS_REQUEST_CHARGE; else 0 */
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
	__le64 stream;		/* related requests have the same one, 0: none */
	__le64 predecessor[8];	/* cookies of what has to be completed first, 0: none */
	__le32 job_size;	/* nodes of the job, 0: unknown */
	__le32 target;		/* which of the server's targets it is for */
	__le32 timeout_ms;	/* how long its client waits, from its arrival; 0: it does not say */
	__le32 elapsed_ms;	/* how long ago it arrived */
};

/* A request has been served, or given up. */
struct nrs_completion {
	struct nrs_header header;
	__le64 cookie;
	__le32 status;		/* 0 or a positive errno */
	__le32 reserved;	/* 0 */
	__le64 bytes;		/* bytes transferred */
};

/* A request, and what has to be completed before it, is to be served with high priority. */
struct nrs_promotion {
	struct nrs_header header;
	__le64 cookie;
};

/* struct nrs_released.header.flags */
#define NRS_RELEASED_PASSED	(1U << 0)	/* nobody waited, so it did not queue */
#define NRS_RELEASED_FORCED	(1U << 1)	/* has no slot: the service was drained */
#define NRS_RELEASED_EXPIRED	(1U << 2)	/* its deadline passed: its client has given up */

/* A request is to be served now. */
struct nrs_released {
	struct nrs_header header;
	__le64 cookie;
	__le64 wait_ns;		/* how long it was withheld */
	__le32 credits;		/* requests that its client may have in the service now */
	__le32 fan_out;		/* clients with requests in the service now */
	__le32 estimate_ms;	/* the worst service time now, for replies */
	__le32 left_ms;		/* until its deadline; 0: it has none, or it passed */
};

/* struct nrs_early.header.flags */
#define NRS_EARLY_AT_ONCE	(1U << 0)	/* its client waits for less than the estimate */
#define NRS_EARLY_BUSY		(1U << 1)	/* the server said itself that it is busy */

/* A request takes longer: its client is to wait for longer. */
struct nrs_early {
	struct nrs_header header;
	__le64 cookie;
	__le32 timeout_ms;	/* how long its client is to wait in all, from its arrival */
	__le32 estimate_ms;	/* the worst service time now */
};

/* All clients that are to come back are back, or will not come. */
struct nrs_recovered {
	struct nrs_header header;
	__le32 clients;		/* reports of clients that came back */
	__le32 largest_ms;	/* largest of their timeouts */
};

/* A request that was read takes so much longer, from now. */
struct nrs_busy {
	struct nrs_header header;
	__le64 cookie;
	__le32 extra_ms;	/* 1 to NRS_LEASE_MAX */
	__le32 reserved;	/* 0 */
};

/* A client has come back after a restart of the server. */
struct nrs_reconnect {
	struct nrs_header header;
	__u8 net;		/* as in struct nrs_request */
	__u8 address_len;
	__le16 net_number;
	__u8 address[16];
	__le32 timeout_ms;	/* how long it waits for a request; 0: it does not say */
};

/*
 * The rest is what passes through /dev/nrs-control in bytes. Its extension: the head of the accounts
 * states the size of a record, so that fields can be appended. Programs ignore flags that they do not know.
 */

/* A factor of one. */
#define NRS_FACTOR_ONE		(1U << 31)

/* Factors that one command sets, at most. */
#define NRS_FACTORS_MAX		16384

/* Longest lease of factors, ms. */
#define NRS_FACTORS_LEASE_MAX	60000

/* How the answer to "accounts" starts; records follow, struct nrs_account. */
struct nrs_accounts {
	__le32 record_size;	/* bytes of one record */
	__le32 count;		/* records */
	__le64 instance;	/* names what ids are of; changes with each start of the policy; never 0 */
	__le64 time_ns;		/* when the accounts were read, CLOCK_MONOTONIC */
	__le64 terms;		/* hash of the mode and the cost model; per service if the mode has cgroup; 0: no accounts */
};

/* struct nrs_account.flags */
#define NRS_ACCOUNT_LEAF	(1U << 0)	/* has requests itself, and none below */
#define NRS_ACCOUNT_ACTIVE	(1U << 1)	/* has requests, queued or in service */
#define NRS_ACCOUNT_WAITING	(1U << 2)	/* has queued requests */
#define NRS_ACCOUNT_GONE	(1U << 3)	/* the last record of an entity that is removed */

/* What was done for one entity, or group of entities. */
struct nrs_account {
	__le64 id;
	__le64 parent;		/* the group that it is in; 0: none */
	__le64 service;		/* service so far, units of cost; of a group: what no other record has */
	__le32 weight;		/* among siblings, without the factor; 4096 for a weight of one */
	__le32 flags;		/* NRS_ACCOUNT_* */
	__le32 factor;		/* in force, in units of 2^-31 */
	__le32 level;		/* 0: outermost */
};

/* A factor, behind the first line of "factors". */
struct nrs_factor {
	__le64 id;
	__le32 factor;		/* what the weight is multiplied by, in units of 2^-31: 1 to NRS_FACTOR_ONE */
	__le32 reserved;	/* 0 */
};

#endif /* _UAPI_NRS_H */
