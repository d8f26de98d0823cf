/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NRS_CAPI_TEST_H
#define NRS_CAPI_TEST_H

#include <linux/printk.h>
#include <linux/types.h>

#include <nrs.h>

/* Counts and logs a failure, with its location, if @cond is false. */
#define CHECK(cond, fmt, ...)									\
	({											\
		bool holds_ = (cond);								\
												\
		if (!holds_)									\
			capi_failed("%s:%d: %s: " fmt, __func__, __LINE__, #cond, ##__VA_ARGS__);	\
		holds_;										\
	})

__printf(1, 2) void capi_failed(const char *fmt, ...);

/* Returns a random number from 0 to @below - 1. */
u32 capi_random(u32 below);

/* OST_READ and OST_WRITE of Lustre's protocol. */
enum { CAPI_READ = 3, CAPI_WRITE = 4 };

/* Fills in a request of one of a few users, jobs and clients. */
void capi_request(struct nrs_request *request, u64 cookie);

/* Callbacks of a framework that ignores them. */
extern const struct nrs_framework_ops capi_idle_ops;

/* Passes requests through each policy. */
int capi_policies(void);

/* Passes @count requests through a service. */
int capi_server(unsigned int count);

/* Checks calls that must be refused. */
int capi_refusals(void);

#endif
