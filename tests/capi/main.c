// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test of include/nrs.h with a server and a framework. Commands for
 * /sys/module/nrs_capi_test/parameters/run:
 *
 *   policies
 *   server COUNT
 *   refusals
 *   hold            keeps a policy started, until "release"
 *   release
 *
 * The write fails with EIO if a check fails; the kernel log names the check.
 */

#include <linux/module.h>
#include <linux/random.h>
#include <linux/string.h>

#include "test.h"

/* Largest number of failed checks that are logged. */
#define FAILURES_SHOWN 20

static atomic_t failures;

void capi_failed(const char *fmt, ...)
{
	struct va_format text = { .fmt = fmt };
	va_list args;

	if (atomic_inc_return(&failures) > FAILURES_SHOWN)
		return;
	va_start(args, fmt);
	text.va = &args;
	pr_err("nrs_capi_test: %pV\n", &text);
	va_end(args);
}

u32 capi_random(u32 below)
{
	return get_random_u32_below(below);
}

void capi_request(struct nrs_request *request, u64 cookie)
{
	static const u32 opcodes[] = { CAPI_READ, CAPI_WRITE };
	u32 user = capi_random(5);

	*request = (struct nrs_request)NRS_REQUEST_INIT;
	request->cookie = cpu_to_le64(cookie);
	request->object = cpu_to_le64(capi_random(3));
	request->offset = cpu_to_le64(capi_random(1000) * 4096ULL);
	request->length = cpu_to_le64(4096);
	request->opcode = cpu_to_le32(opcodes[capi_random(2)]);
	request->uid = cpu_to_le32(1000 + user);
	request->net = NRS_NET_TCP;
	request->address_len = 4;
	request->address[0] = 10;
	request->address[3] = user;
	snprintf(request->jobid, sizeof(request->jobid), "job.%u", user);
}

static struct nrs_framework *held_framework;
static struct nrs_policy *held_policy;

static void wake_noop(void *context)
{
}

const struct nrs_framework_ops capi_idle_ops = { .wake = wake_noop };

static int hold(void)
{
	struct nrs_framework *framework = nrs_framework_open("capi-hold", 1, &capi_idle_ops, NULL);
	struct nrs_policy *policy;

	if (IS_ERR(framework))
		return PTR_ERR(framework);
	policy = nrs_policy_start(framework, "fairshare", "uid_fair", NRS_HEAD_REGULAR, 0);
	if (IS_ERR(policy)) {
		nrs_framework_close(framework);
		return PTR_ERR(policy);
	}
	held_framework = framework;
	held_policy = policy;
	return 0;
}

static int release(void)
{
	if (!held_policy)
		return -ENOENT;
	nrs_policy_stop(held_policy);
	nrs_framework_close(held_framework);
	held_policy = NULL;
	return 0;
}

static int run(const char *text)
{
	unsigned int count;

	if (sysfs_streq(text, "policies"))
		return capi_policies();
	if (sysfs_streq(text, "refusals"))
		return capi_refusals();
	if (sysfs_streq(text, "hold"))
		return hold();
	if (sysfs_streq(text, "release"))
		return release();
	if (sscanf(text, "server %u", &count) == 1)
		return capi_server(count);
	return -EINVAL;
}

static int set_run(const char *text, const struct kernel_param *param)
{
	int error;

	atomic_set(&failures, 0);
	error = run(text);
	return error ?: atomic_read(&failures) ? -EIO : 0;
}

static const struct kernel_param_ops run_ops = { .set = set_run };

module_param_cb(run, &run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "Runs a test");

static int __init capi_init(void)
{
	return 0;
}

static void __exit capi_exit(void)
{
}

module_init(capi_init);
module_exit(capi_exit);
MODULE_DESCRIPTION("Test server and framework for nrs");
MODULE_LICENSE("GPL");
