/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Lustre's header of this name that lustre/ uses. */
#ifndef STAND_IN_LUSTRE_REQ_LAYOUT_H
#define STAND_IN_LUSTRE_REQ_LAYOUT_H

#include "lustre_net.h"

struct req_msg_field {
	unsigned int offset, size;
};

extern struct req_msg_field RMF_OST_BODY, RMF_OBD_IOOBJ, RMF_NIOBUF_REMOTE;

void *req_capsule_client_get(struct req_capsule *pill, const struct req_msg_field *field);
u32 req_capsule_get_size(const struct req_capsule *pill, const struct req_msg_field *field,
			 enum req_location where);

#endif
