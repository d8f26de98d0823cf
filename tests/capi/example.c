// SPDX-License-Identifier: GPL-2.0-only
/* A server whose requests nrs schedules: it answers each one after a millisecond. */

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include <nrs.h>

struct example_request {
	struct work_struct work;
	u32 uid;
};

static struct nrs_server *example;
/* Changed with the parameters locked: requests are received while it is true. */
static bool open;
static struct workqueue_struct *workers;

static void serve(struct work_struct *work)
{
	struct example_request *request = container_of(work, struct example_request, work);

	usleep_range(1000, 2000);
	nrs_complete(example, (uintptr_t)request, 0, 4096);
	kfree(request);
}

/* nrs has decided that the request is next. */
static void dispatch(void *context, const struct nrs_released *released)
{
	struct example_request *request = (void *)(uintptr_t)le64_to_cpu(released->cookie);

	INIT_WORK(&request->work, serve);
	queue_work(workers, &request->work);
}

static const struct nrs_server_ops example_ops = { .dispatch = dispatch };

/* A client has sent a request: echo UID >/sys/module/nrs_example/parameters/request */
static int receive(const char *text, const struct kernel_param *param)
{
	struct example_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	struct nrs_request record = NRS_REQUEST_INIT;
	int error = request ? kstrtou32(text, 0, &request->uid) : -ENOMEM;

	if (!error && !open)
		error = -ENODEV;
	if (!error) {
		record.cookie = cpu_to_le64((uintptr_t)request);
		record.opcode = cpu_to_le32(3);
		record.uid = cpu_to_le32(request->uid);
		record.length = cpu_to_le64(4096);
		error = nrs_submit(example, &record, true);
	}
	if (error)
		kfree(request);
	return error;
}

static const struct kernel_param_ops receive_ops = { .set = receive };
module_param_cb(request, &receive_ops, NULL, 0200);

static void set_open(bool value)
{
	kernel_param_lock(THIS_MODULE);
	open = value;
	kernel_param_unlock(THIS_MODULE);
}

static int __init example_init(void)
{
	struct nrs_attach attach = NRS_ATTACH_INIT("example", "example");

	workers = alloc_workqueue("nrs_example", WQ_UNBOUND, 0);
	if (!workers)
		return -ENOMEM;
	example = nrs_server_open(&attach, &example_ops, NULL);
	if (IS_ERR(example)) {
		destroy_workqueue(workers);
		return PTR_ERR(example);
	}
	set_open(true);
	return 0;
}

static void __exit example_exit(void)
{
	set_open(false);
	nrs_server_close(example);
	destroy_workqueue(workers);
}

module_init(example_init);
module_exit(example_exit);
MODULE_DESCRIPTION("A server whose requests nrs schedules");
MODULE_LICENSE("GPL");
