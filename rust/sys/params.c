// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module parameters, shown and changed in /sys/module/nrs/parameters and read by sys/params.rs. The
 * parameters of the kernel crate can be set at load time only and are not shown there.
 */

#include <linux/limits.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/stringify.h>
#include <linux/sysfs.h>

/* Sets a parameter to 0 for WORD, if not NULL, or to a number from LOW to HIGH; else -EINVAL. */
static int nrs_set(const char *val, const struct kernel_param *kp, const char *word,
		   unsigned int low, unsigned int high)
{
	if (!word || !sysfs_streq(val, word))
		return param_set_uint_minmax(val, kp, low, high);
	WRITE_ONCE(*(unsigned int *)kp->arg, 0);
	return 0;
}

/* Shows a parameter; shows 0 as WORD, if not NULL. */
static int nrs_get(char *buffer, const struct kernel_param *kp, const char *word)
{
	if (!word || READ_ONCE(*(unsigned int *)kp->arg))
		return param_get_uint(buffer, kp);
	return sysfs_emit(buffer, "%s\n", word);
}

#define NRS_PARAM_OR(NAME, WORD, DEFAULT, LOW, HIGH, TEXT)					\
	extern unsigned int nrs_param_##NAME;							\
	unsigned int nrs_param_##NAME = DEFAULT;						\
	static int nrs_set_##NAME(const char *val, const struct kernel_param *kp)		\
	{											\
		return nrs_set(val, kp, WORD, LOW, HIGH);					\
	}											\
	static int nrs_get_##NAME(char *buffer, const struct kernel_param *kp)			\
	{											\
		return nrs_get(buffer, kp, WORD);						\
	}											\
	static const struct kernel_param_ops nrs_ops_##NAME = {					\
		.set = nrs_set_##NAME,								\
		.get = nrs_get_##NAME,								\
	};											\
	module_param_cb(NAME, &nrs_ops_##NAME, &nrs_param_##NAME, 0644);			\
	MODULE_PARM_DESC(NAME, TEXT)

#define NRS_PARAM(NAME, DEFAULT, LOW, HIGH, TEXT)						\
	NRS_PARAM_OR(NAME, NULL, DEFAULT, LOW, HIGH, TEXT " (" __stringify(LOW) ".."		\
		     __stringify(HIGH) ", default " __stringify(DEFAULT) ")")

NRS_PARAM_OR(default_slots, "auto", 0, 1, 65535,
	     "Default number of slots of a service (1..65535, or auto, default auto)");
NRS_PARAM(user_requests_max, 65536, 64, 1048576, "Limit of requests of an open file of /dev/nrs");
NRS_PARAM(direct_run, 1, 0, 1,
	  "1: a task that inserts a request into a disk's scheduler runs the hardware queue");
NRS_PARAM(classes_max, 16384, 64, 1048576,
	  "Limit of classes of a policy on one partition of a new service");
