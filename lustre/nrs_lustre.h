/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies of nrs in the request scheduler of Lustre's ptlrpc.
 *
 * ptlrpc keeps its heads, one or two for each partition of a service, and asks one policy at a time, with the partition's lock
 * held. Each of its services is a service of nrs by the same name, with a partition for each of its own.
 */
#ifndef NRS_LUSTRE_H
#define NRS_LUSTRE_H

#include <linux/types.h>

#include <nrs.h>

struct ptlrpc_nrs_pol_conf;
struct ptlrpc_request;

/* Finds what ptlrpc does not export; an errno, and in the kernel log what is missing. */
int ptlrpc_find(void);

/* Registers a policy with all services that there are, and with those that come. */
int ptlrpc_register(struct ptlrpc_nrs_pol_conf *conf);

/* Takes back a policy that is not started. */
void ptlrpc_unregister(const char *name);

/* Fills in what is known of @req, of which nothing is known yet; sleeps only if it is not @moving to the other head. */
void describe_request(struct nrs_request *record, struct ptlrpc_request *req, bool moving);

#endif
