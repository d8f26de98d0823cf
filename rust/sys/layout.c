// SPDX-License-Identifier: GPL-2.0-only
/* Sizes and offsets of private structures, from the block layer's own headers. */

#include <linux/array_size.h>
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

/* The rows of a structure are neighbours, so that it is looked up once. */
static const struct nrs_layout rows[] = {
	SIZE(elevator_type),
	OFFSET(elevator_type, ops),
	OFFSET(elevator_type, elevator_attrs),
	OFFSET(elevator_type, elevator_name),
	OFFSET(elevator_type, elevator_owner),

	SIZE(elevator_mq_ops),
	OPERATION(init_sched),
	OPERATION(exit_sched),
	OPERATION(init_hctx),
	OPERATION(exit_hctx),
	OPERATION(depth_updated),
	OPERATION(alloc_sched_data),
	OPERATION(free_sched_data),
	OPERATION(allow_merge),
	OPERATION(bio_merge),
	OPERATION(request_merged),
	OPERATION(requests_merged),
	OPERATION(limit_depth),
	OPERATION(prepare_request),
	OPERATION(finish_request),
	OPERATION(insert_requests),
	OPERATION(dispatch_request),
	OPERATION(has_work),
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
	/* A module that is loaded by force may be another kernel's. */
	return !IS_ENABLED(CONFIG_DEBUG_INFO_BTF) && !strcmp(init_utsname()->release, UTS_RELEASE);
}
