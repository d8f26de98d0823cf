/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NRS_LUSTRE_H
#define NRS_LUSTRE_H

#include <linux/types.h>

#include <nrs.h>

struct ptlrpc_nrs_pol_conf;
struct ptlrpc_nrs_pol_desc;
struct ptlrpc_request;

/* Looks up the symbols that ptlrpc does not export; returns an errno and logs a missing symbol. */
int ptlrpc_find(void);

/* Registers a policy with all existing and future services. */
int ptlrpc_register(struct ptlrpc_nrs_pol_conf *conf);

/* Unregisters a stopped policy; the caller frees the result once no service uses it. */
struct ptlrpc_nrs_pol_desc *ptlrpc_unregister(const char *name);

/* Waits until functions of policies that run under ptlrpc's mutex have returned. */
void ptlrpc_synchronize(void);

/* Sets the known attributes of @req. */
void describe_request(struct nrs_request *record, struct ptlrpc_request *req);

#endif
