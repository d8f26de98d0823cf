/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NRS_LUSTRE_H
#define NRS_LUSTRE_H

#include <linux/types.h>

#include <nrs.h>

struct ptlrpc_nrs_pol_conf;
struct ptlrpc_nrs_pol_desc;
struct ptlrpc_request;

/* Finds what ptlrpc does not export; an errno, and in the kernel log what is missing. */
int ptlrpc_find(void);

/* Registers a policy with all services that there are, and with those that come. */
int ptlrpc_register(struct ptlrpc_nrs_pol_conf *conf);

/* Takes back a registered policy that is not started; services that are going still have what it returns, to be freed. */
struct ptlrpc_nrs_pol_desc *ptlrpc_unregister(const char *name);

/* Fills in what is known of @req. */
void describe_request(struct nrs_request *record, struct ptlrpc_request *req);

#endif
