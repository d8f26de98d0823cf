// SPDX-License-Identifier: GPL-2.0-only
/*
 * The way into ptlrpc, which exports nothing of its request scheduler: functions and variables are found by name.
 *
 * kallsyms_lookup_name() is not exported either; a kprobe tells where it is. A name with "ptlrpc:" before it is looked for in
 * that module only.
 */

#include <linux/kprobes.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>
#include <asm/cpufeature.h>

#include <obd_support.h>
#include <lustre_net.h>

#include "nrs_lustre.h"

/* As ptlrpc declares it for itself. */
struct nrs_core {
	struct mutex nrs_mutex;
	struct list_head nrs_policies;
};

static int (*policy_register)(struct ptlrpc_nrs_pol_conf *conf);
static int (*policy_unregister)(struct ptlrpc_nrs_pol_desc *desc);
static struct nrs_core *core;
static struct mutex *all_services;

/*
 * Whether a function that is known by its address only may be called: where the CPU checks indirect branches, it has to begin
 * with ENDBR, which the kernel removes from functions that nothing calls by their address.
 */
static bool may_be_called(unsigned long address)
{
	static const u8 endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	u8 code[sizeof(endbr)];

	if (!IS_ENABLED(CONFIG_X86_KERNEL_IBT) || !cpu_feature_enabled(X86_FEATURE_IBT))
		return true;
	return !copy_from_kernel_nofault(code, (void *)address, sizeof(code)) && !memcmp(code, endbr, sizeof(code));
}

int ptlrpc_find(void)
{
	static const struct {
		const char *name;
		void *place;
		bool is_function;
	} symbols[] = {
		{ "ptlrpc:ptlrpc_nrs_policy_register", &policy_register, true },
		{ "ptlrpc:nrs_policy_unregister_locked", &policy_unregister, true },
		{ "ptlrpc:nrs_core", &core, false },
		{ "ptlrpc:ptlrpc_all_services_mutex", &all_services, false },
	};
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*look_up)(const char *name);
	struct ptlrpc_nrs_pol_desc *first;
	unsigned int index;
	int error;

	error = register_kprobe(&probe);
	if (error) {
		pr_err("nrs_lustre: no kprobe on kallsyms_lookup_name (%d): needs CONFIG_KPROBES and CONFIG_KALLSYMS\n", error);
		return error;
	}
	look_up = (void *)probe.addr;
	unregister_kprobe(&probe);
	if (!may_be_called((unsigned long)look_up)) {
		pr_err("nrs_lustre: kallsyms_lookup_name cannot be called by address; boot with ibt=off\n");
		return -EOPNOTSUPP;
	}
	for (index = 0; index < ARRAY_SIZE(symbols); index++) {
		unsigned long address = look_up(symbols[index].name);

		if (!address) {
			pr_err("nrs_lustre: this Lustre has no %s (with CONFIG_KALLSYMS_ALL)\n", symbols[index].name);
			return -ENOENT;
		}
		if (symbols[index].is_function && !may_be_called(address)) {
			pr_err("nrs_lustre: %s cannot be called by address; boot with ibt=off, or export it from Lustre\n",
			       symbols[index].name);
			return -EOPNOTSUPP;
		}
		*(unsigned long *)symbols[index].place = address;
	}
	/* Its first policy is known: if that is not there, structures are others than those this was built with. */
	mutex_lock(&core->nrs_mutex);
	first = list_first_entry_or_null(&core->nrs_policies, struct ptlrpc_nrs_pol_desc, pd_list);
	error = first && !strncmp(first->pd_name, "fifo", NRS_POL_NAME_MAX) ? 0 : -EINVAL;
	mutex_unlock(&core->nrs_mutex);
	if (error)
		pr_err("nrs_lustre: the first policy of ptlrpc is not fifo: this was built for another Lustre\n");
	return error;
}

int ptlrpc_register(struct ptlrpc_nrs_pol_conf *conf)
{
	int error = policy_register(conf);

	if (error)
		pr_err("nrs_lustre: ptlrpc refuses the policy %s: %d\n", conf->nc_name, error);
	return error;
}

void ptlrpc_unregister(const char *name)
{
	struct ptlrpc_nrs_pol_desc *desc;

	mutex_lock(&core->nrs_mutex);
	list_for_each_entry(desc, &core->nrs_policies, pd_list) {
		if (strncmp(desc->pd_name, name, NRS_POL_NAME_MAX))
			continue;
		mutex_lock(all_services);
		/* It fails only while a policy is started, and that keeps this module. */
		WARN_ON(policy_unregister(desc));
		mutex_unlock(all_services);
		list_del(&desc->pd_list);
		OBD_FREE_PTR(desc);
		break;
	}
	mutex_unlock(&core->nrs_mutex);
}
