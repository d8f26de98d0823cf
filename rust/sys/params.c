// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module parameters that can be seen and changed in /sys/module/nrs/parameters. The kernel crate's parameters can be set
 * at load time only and are not shown there. sys/params.rs reads them.
 */

#include <linux/limits.h>
#include <linux/moduleparam.h>
#include <linux/stringify.h>

/* A number of [LOW, HIGH]; anything else is EINVAL and changes nothing. */
#define NRS_PARAM(NAME, DEFAULT, LOW, HIGH, TEXT)						\
	extern unsigned int nrs_param_##NAME;							\
	unsigned int nrs_param_##NAME = DEFAULT;						\
	static int nrs_set_##NAME(const char *val, const struct kernel_param *kp)		\
	{											\
		return param_set_uint_minmax(val, kp, LOW, HIGH);				\
	}											\
	static const struct kernel_param_ops nrs_ops_##NAME = {					\
		.set = nrs_set_##NAME,								\
		.get = param_get_uint,								\
	};											\
	module_param_cb(NAME, &nrs_ops_##NAME, &nrs_param_##NAME, 0644);			\
	MODULE_PARM_DESC(NAME, TEXT " (" __stringify(LOW) ".." __stringify(HIGH)		\
			 ", default " __stringify(DEFAULT) ")")

NRS_PARAM(default_slots, 64, 1, 65535, "Slots of a service that does not say how many");
NRS_PARAM(user_requests_max, 65536, 64, 1048576, "Requests that an open file of /dev/nrs may have");
NRS_PARAM(direct_run, 1, 0, 1, "Whether a task that inserts a request into a disk's scheduler runs the queue itself");
NRS_PARAM(classes_max, 16384, 64, 1048576, "Classes that a policy keeps on one partition of a new service");
