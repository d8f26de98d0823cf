/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Lustre's header of this name that lustre/ uses; all names and types are Lustre's. */
#ifndef STAND_IN_LUSTRE_NET_H
#define STAND_IN_LUSTRE_NET_H

#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#define NRS_POL_NAME_MAX	16
#define NRS_POL_ARG_MAX		16

#define OST_READ		3
#define OST_WRITE		4
#define OBD_MD_FLPROJID		0x1ULL

enum req_location { RCL_CLIENT, RCL_SERVER };

struct lnet_nid {
	__u8 nid_size;
	__u8 nid_type;
	__be16 nid_num;
	__be32 nid_addr[4];
} __packed;

struct lnet_processid {
	__u32 pid;
	struct lnet_nid nid;
};

struct ost_id {
	__u64 id;
};

struct obdo {
	__u64 o_valid;
	struct ost_id o_oi;
	__u32 o_uid, o_gid, o_projid;
};

struct ost_body {
	struct obdo oa;
};

struct obd_ioobj {
	__u32 ioo_bufcnt;
};

struct niobuf_remote {
	__u64 rnb_offset;
	__u32 rnb_len;
};

/* Only the fields that the accessors return. */
struct lustre_msg {
	__u32 opcode, uid, gid, projid;
	char jobid[32];
	struct ost_body body;
	struct obd_ioobj object;
	struct niobuf_remote piece;
};

struct req_format;

struct req_capsule {
	const struct req_format *rc_fmt;
	struct lustre_msg *rc_reqmsg;
};

#define rq_reqmsg rq_pill.rc_reqmsg

enum ptlrpc_nrs_queue_type {
	PTLRPC_NRS_QUEUE_REG = 1,
	PTLRPC_NRS_QUEUE_HP = 2,
};

enum ptlrpc_nrs_pol_state {
	NRS_POL_STATE_STOPPED = 1,
	NRS_POL_STATE_STOPPING,
	NRS_POL_STATE_STARTED = 4,
};

enum { PTLRPC_NRS_FL_FALLBACK = 1, PTLRPC_NRS_FL_REG_START = 2, PTLRPC_NRS_FL_REG_EXTERN = 4 };

enum ptlrpc_nrs_ctl { PTLRPC_NRS_CTL_START = 1 };

struct ptlrpc_service;
struct ptlrpc_nrs_policy;
struct ptlrpc_nrs_request;
struct ptlrpc_nrs_resource;
struct ptlrpc_nrs_pol_desc;

struct ptlrpc_nrs_pol_ops {
	int (*op_policy_init)(struct ptlrpc_nrs_policy *policy);
	void (*op_policy_fini)(struct ptlrpc_nrs_policy *policy);
	int (*op_policy_start)(struct ptlrpc_nrs_policy *policy, char *arg);
	void (*op_policy_stop)(struct ptlrpc_nrs_policy *policy);
	int (*op_policy_ctl)(struct ptlrpc_nrs_policy *policy, enum ptlrpc_nrs_ctl opc, void *arg);
	int (*op_res_get)(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq,
			  const struct ptlrpc_nrs_resource *parent,
			  struct ptlrpc_nrs_resource **resp, bool moving_req);
	void (*op_res_put)(struct ptlrpc_nrs_policy *policy, const struct ptlrpc_nrs_resource *res);
	struct ptlrpc_nrs_request *(*op_req_get)(struct ptlrpc_nrs_policy *policy, bool peek,
						 bool force);
	int (*op_req_enqueue)(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq);
	void (*op_req_dequeue)(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq);
	void (*op_req_stop)(struct ptlrpc_nrs_policy *policy, struct ptlrpc_nrs_request *nrq);
	int (*op_lprocfs_init)(struct ptlrpc_service *svc);
	void (*op_lprocfs_fini)(struct ptlrpc_service *svc);
};

typedef bool (*nrs_pol_desc_compat_t)(const struct ptlrpc_service *svc,
				      const struct ptlrpc_nrs_pol_desc *desc);

struct ptlrpc_nrs_pol_conf {
	char nc_name[NRS_POL_NAME_MAX];
	const struct ptlrpc_nrs_pol_ops *nc_ops;
	nrs_pol_desc_compat_t nc_compat;
	const char *nc_compat_svc_name;
	struct module *nc_owner;
	unsigned int nc_flags;
};

struct ptlrpc_nrs_pol_desc {
	char pd_name[NRS_POL_NAME_MAX];
	struct list_head pd_list;
	const struct ptlrpc_nrs_pol_ops *pd_ops;
	nrs_pol_desc_compat_t pd_compat;
	const char *pd_compat_svc_name;
	struct module *pd_owner;
	unsigned int pd_flags;
	atomic_t pd_refs;
};

struct ptlrpc_nrs {
	spinlock_t nrs_lock;
	struct list_head nrs_policy_list;
	struct list_head nrs_policy_queued;
	struct ptlrpc_service_part *nrs_svcpt;
	struct ptlrpc_nrs_policy *nrs_policy_primary;
	struct ptlrpc_nrs_policy *nrs_policy_fallback;
	enum ptlrpc_nrs_queue_type nrs_queue_type;
	unsigned long nrs_req_queued;
	unsigned long nrs_req_started;
	unsigned int nrs_num_pols;
	unsigned int nrs_policy_starting:1;
	unsigned int nrs_stopping:1;
	unsigned int nrs_throttling:1;
};

struct ptlrpc_nrs_policy {
	struct list_head pol_list;
	struct list_head pol_list_queued;
	enum ptlrpc_nrs_pol_state pol_state;
	unsigned int pol_flags;
	long pol_req_queued;
	long pol_req_started;
	long pol_ref;
	refcount_t pol_start_ref;
	char pol_arg[NRS_POL_ARG_MAX];
	struct ptlrpc_nrs *pol_nrs;
	void *pol_private;
	struct ptlrpc_nrs_pol_desc *pol_desc;
	wait_queue_head_t pol_wq;
};

struct ptlrpc_nrs_resource {
	struct ptlrpc_nrs_resource *res_parent;
	struct ptlrpc_nrs_policy *res_policy;
};

enum { NRS_RES_FALLBACK, NRS_RES_PRIMARY, NRS_RES_MAX };

struct ptlrpc_nrs_request {
	struct ptlrpc_nrs_resource *nr_res_ptrs[NRS_RES_MAX];
	unsigned int nr_res_idx;
	unsigned int nr_initialized:1;
	unsigned int nr_enqueued:1;
	unsigned int nr_started:1;
	unsigned int nr_finalized:1;
};

struct ptlrpc_request {
	struct lnet_processid rq_peer;
	struct req_capsule rq_pill;
	struct ptlrpc_nrs_request rq_nrq;
	/* Fields of the stand-in: */
	struct list_head link;
	struct list_head fifo;
	struct lustre_msg message;
	bool hp;
};

static inline bool ptlrpc_nrs_req_can_move(struct ptlrpc_request *req)
{
	return req->rq_nrq.nr_enqueued && !req->rq_nrq.nr_started && !req->hp;
}

struct ptlrpc_service_part {
	struct ptlrpc_service *scp_service;
	int scp_cpt;
	wait_queue_head_t scp_waitq;
	spinlock_t scp_req_lock;
	struct ptlrpc_nrs scp_nrs_reg;
	struct ptlrpc_nrs scp_nrs_hp;
	/* Fields of the stand-in: */
	wait_queue_head_t room;
	spinlock_t rpc_lock;
	struct list_head live;
	atomic_t count;
};

struct ptlrpc_service {
	char *srv_name;
	int srv_ncpts;
	struct ptlrpc_service_part *srv_parts[2];
};

u32 lustre_msg_get_opc(struct lustre_msg *msg);
char *lustre_msg_get_jobid(struct lustre_msg *msg);
int lustre_msg_get_uid_gid(struct lustre_msg *msg, u32 *uid, u32 *gid);
int lustre_msg_get_projid(struct lustre_msg *msg, u32 *projid);

#endif
