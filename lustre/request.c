// SPDX-License-Identifier: GPL-2.0-only
/* Describes requests of ptlrpc to nrs. */

#include <lustre_net.h>
#include <lustre_req_layout.h>
#include <obd_class.h>

#include "nrs_lustre.h"

/* Sets the client's network identifier, unless nrs does not know its kind. */
static void describe_peer(struct nrs_request *record, const struct lnet_nid *nid)
{
	static const u32 known = BIT(NRS_NET_TCP) | BIT(NRS_NET_O2IB) | BIT(NRS_NET_LO) |
				 BIT(NRS_NET_GNI) | BIT(NRS_NET_GIP) | BIT(NRS_NET_PTLF) | BIT(NRS_NET_KFI);
	unsigned int bytes = nid->nid_size + 4;

	if (nid->nid_type > NRS_NET_KFI || !(known & BIT(nid->nid_type)))
		return;
	if (bytes != 4 && bytes != sizeof(record->address))
		return;
	record->net = nid->nid_type;
	record->net_number = cpu_to_le16(be16_to_cpu(nid->nid_num));
	record->address_len = bytes;
	memcpy(record->address, nid->nid_addr, bytes);
}

/* Sets object and range of an OST read or write; ost_io's classifier has set the format. */
static void describe_range(struct nrs_request *record, struct req_capsule *pill)
{
	const struct ost_body *body = req_capsule_client_get(pill, &RMF_OST_BODY);
	const struct obd_ioobj *object = req_capsule_client_get(pill, &RMF_OBD_IOOBJ);
	const struct niobuf_remote *pieces = req_capsule_client_get(pill, &RMF_NIOBUF_REMOTE);
	const __le32 absent = cpu_to_le32(NRS_ID_ABSENT);
	unsigned int index, count;
	u64 bytes = 0;

	if (!body || !object || !pieces)
		return;
	/* The client did not pack these ids into the message. */
	if (record->uid == absent)
		record->uid = cpu_to_le32(body->oa.o_uid);
	if (record->gid == absent)
		record->gid = cpu_to_le32(body->oa.o_gid);
	if (record->projid == absent)
		record->projid = cpu_to_le32(body->oa.o_projid);
	count = req_capsule_get_size(pill, &RMF_NIOBUF_REMOTE, RCL_CLIENT) / sizeof(*pieces);
	count = min_t(unsigned int, count, object->ioo_bufcnt);
	for (index = 0; index < count; index++)
		bytes += pieces[index].rnb_len;
	if (!count || bytes > NRS_CHARGE_MAX || pieces[0].rnb_offset > S64_MAX)
		return;
	record->object = cpu_to_le64(ostid_id(&body->oa.o_oi));
	record->offset = cpu_to_le64(pieces[0].rnb_offset);
	record->length = cpu_to_le64(bytes);
}

void describe_request(struct nrs_request *record, struct ptlrpc_request *req)
{
	struct lustre_msg *message = req->rq_reqmsg;
	u32 opcode = lustre_msg_get_opc(message), uid, gid, projid;
	const char *jobid = lustre_msg_get_jobid(message);

	*record = (struct nrs_request)NRS_REQUEST_INIT;
	record->opcode = cpu_to_le32(opcode);
	describe_peer(record, &req->rq_peer.nid);
	if (jobid)
		strscpy_pad(record->jobid, jobid);
	if (!lustre_msg_get_uid_gid(message, &uid, &gid)) {
		record->uid = cpu_to_le32(uid);
		record->gid = cpu_to_le32(gid);
	}
	if (!lustre_msg_get_projid(message, &projid))
		record->projid = cpu_to_le32(projid);
	if ((opcode == OST_READ || opcode == OST_WRITE) && req->rq_pill.rc_fmt)
		describe_range(record, &req->rq_pill);
}
