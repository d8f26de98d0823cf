// SPDX-License-Identifier: GPL-2.0-only
/* Sizes, offsets and prototypes of private structures, from the block layer's own headers. */

#include <linux/array_size.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/kconfig.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/utsname.h>
#include <generated/utsrelease.h>

#include "block/elevator.h"

#include "layout.h"

#define SIZE(s) { #s, NULL, sizeof(struct s) }
#define OFFSET(s, m) { #s, #m, offsetof(struct s, m) }
#define OPERATION(m) OFFSET(elevator_mq_ops, m)
/* An operation that the I/O scheduler implements. */
#define OWN(m, result, ...) { \
	"elevator_mq_ops", #m, \
	offsetof(struct elevator_mq_ops, m) + \
	BUILD_BUG_ON_ZERO(!__same_type(((struct elevator_mq_ops *)NULL)->m, result (*)(__VA_ARGS__))), \
	#result "(" #__VA_ARGS__ ")" \
}

/* Rows of one structure are adjacent, so that the structure is looked up once. */
static const struct nrs_layout rows[] = {
	SIZE(elevator_type),
	OFFSET(elevator_type, ops),
	OFFSET(elevator_type, elevator_attrs),
	OFFSET(elevator_type, elevator_name),
	OFFSET(elevator_type, elevator_owner),

	SIZE(elevator_mq_ops),
	OWN(init_sched, int, struct request_queue *, struct elevator_queue *),
	OWN(exit_sched, void, struct elevator_queue *),
	OPERATION(init_hctx),
	OPERATION(exit_hctx),
	OWN(depth_updated, void, struct request_queue *),
	OWN(alloc_sched_data, void *, struct request_queue *),
	OWN(free_sched_data, void, void *),
	OWN(allow_merge, bool, struct request_queue *, struct request *, struct bio *),
	OWN(bio_merge, bool, struct request_queue *, struct bio *, unsigned int),
	OPERATION(request_merged),
	OPERATION(requests_merged),
	OPERATION(limit_depth),
	OWN(prepare_request, void, struct request *),
	OWN(finish_request, void, struct request *),
	OWN(insert_requests, void, struct blk_mq_hw_ctx *, struct list_head *, blk_insert_t),
	OWN(dispatch_request, struct request *, struct blk_mq_hw_ctx *),
	OWN(has_work, bool, struct blk_mq_hw_ctx *),
	OPERATION(completed_request),
	OPERATION(requeue_request),

	SIZE(elevator_queue),
	OFFSET(elevator_queue, type),
	OFFSET(elevator_queue, elevator_data),

	SIZE(blk_mq_alloc_data),
	OFFSET(blk_mq_alloc_data, q),
	OFFSET(blk_mq_alloc_data, shallow_depth),
};

const struct nrs_layout *nrs_layout_rows(size_t *len)
{
	*len = ARRAY_SIZE(rows);
	return rows;
}

bool nrs_layout_is_given(void)
{
	/* A module loaded by force may have been built for another kernel. */
	return !IS_ENABLED(CONFIG_DEBUG_INFO_BTF) && !strcmp(init_utsname()->release, UTS_RELEASE);
}
