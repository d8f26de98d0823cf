// SPDX-License-Identifier: GPL-2.0-only
/*
 * Access to ptlrpc's request scheduler, which is not exported: symbols are looked up by name.
 *
 * kallsyms_lookup_name() is not exported either; a kprobe yields its address. The prefix "ptlrpc:"
 * restricts a lookup to that module. Static calls are direct: with indirect branch tracking,
 * functions whose address is never taken cannot be called indirectly.
 */

#include <linux/kprobes.h>
#include <linux/mutex.h>
#include <linux/static_call.h>

#include <lustre_net.h>

#include "nrs_lustre.h"

/* Copy of ptlrpc's private declaration. */
struct nrs_core {
	struct mutex nrs_mutex;
	struct list_head nrs_policies;
};

/* Declared only for their types. */
unsigned long look_up(const char *name);
int policy_register(struct ptlrpc_nrs_pol_conf *conf);
int policy_unregister(struct ptlrpc_nrs_pol_desc *desc);
DEFINE_STATIC_CALL_NULL(look_up, look_up);
DEFINE_STATIC_CALL_NULL(policy_register, policy_register);
DEFINE_STATIC_CALL_NULL(policy_unregister, policy_unregister);
static struct nrs_core *core;
static struct mutex *all_services;

int ptlrpc_find(void)
{
	static const char *const names[] = {
		"ptlrpc:ptlrpc_nrs_policy_register",
		"ptlrpc:nrs_policy_unregister_locked",
		"ptlrpc:nrs_core",
		"ptlrpc:ptlrpc_all_services_mutex",
	};
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long found[ARRAY_SIZE(names)];
	struct ptlrpc_nrs_pol_desc *first;
	unsigned int index;
	int error;

	error = register_kprobe(&probe);
	if (error) {
		pr_err("nrs_lustre: no kallsyms_lookup_name: needs CONFIG_KPROBES, CONFIG_KALLSYMS\n");
		return error;
	}
	/* The address may be after a landing pad, which a direct call does not need. */
	static_call_update(look_up, (typeof(&look_up))probe.addr);
	unregister_kprobe(&probe);
	for (index = 0; index < ARRAY_SIZE(names); index++) {
		found[index] = static_call(look_up)(names[index]);
		if (!found[index]) {
			pr_err("nrs_lustre: symbol %s not found (needs CONFIG_KALLSYMS_ALL)\n", names[index]);
			return -ENOENT;
		}
	}
	static_call_update(policy_register, (typeof(&policy_register))found[0]);
	static_call_update(policy_unregister, (typeof(&policy_unregister))found[1]);
	core = (void *)found[2];
	all_services = (void *)found[3];
	/* The first policy is known; if it differs, so do the structures from those of the build. */
	mutex_lock(&core->nrs_mutex);
	first = list_first_entry_or_null(&core->nrs_policies, struct ptlrpc_nrs_pol_desc, pd_list);
	error = first && !strncmp(first->pd_name, "fifo", NRS_POL_NAME_MAX) ? 0 : -EINVAL;
	mutex_unlock(&core->nrs_mutex);
	if (error)
		pr_err("nrs_lustre: first policy of ptlrpc is not fifo: built for another Lustre\n");
	return error;
}

int ptlrpc_register(struct ptlrpc_nrs_pol_conf *conf)
{
	return static_call(policy_register)(conf);
}

void ptlrpc_synchronize(void)
{
	mutex_lock(&core->nrs_mutex);
	mutex_unlock(&core->nrs_mutex);
}

struct ptlrpc_nrs_pol_desc *ptlrpc_unregister(const char *name)
{
	struct ptlrpc_nrs_pol_desc *desc;

	mutex_lock(&core->nrs_mutex);
	list_for_each_entry(desc, &core->nrs_policies, pd_list)
		if (!strncmp(desc->pd_name, name, NRS_POL_NAME_MAX))
			break;
	mutex_lock(all_services);
	/* Fails only while a policy is started, and a started policy pins this module. */
	WARN_ON(static_call(policy_unregister)(desc));
	mutex_unlock(all_services);
	list_del(&desc->pd_list);
	mutex_unlock(&core->nrs_mutex);
	return desc;
}
