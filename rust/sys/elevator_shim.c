// SPDX-License-Identifier: GPL-2.0-only
/* Wrappers of macros and inline functions for I/O schedulers. */

#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/list.h>
#include <linux/percpu-refcount.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <trace/events/block.h>

#include "block/blk-mq.h"
#include "block/blk-wbt.h"
#include "elevator_shim.h"

struct device *nrs_queue_disk(struct request_queue *q)
{
	return q->disk ? get_device(disk_to_dev(q->disk)) : NULL;
}

bool nrs_queue_is_dying(struct request_queue *q)
{
	return percpu_ref_is_dying(&q->q_usage_counter);
}

void nrs_queue_throttle_writeback(struct request_queue *q, bool throttle)
{
	if (throttle) {
		blk_queue_flag_clear(QUEUE_FLAG_DISABLE_WBT_DEF, q);
		wbt_enable_default(q->disk);
	} else {
		blk_queue_flag_set(QUEUE_FLAG_DISABLE_WBT_DEF, q);
		wbt_disable_default(q->disk);
	}
}

unsigned int nrs_request_cpu(struct request *rq)
{
	return rq->mq_ctx->cpu;
}

bool nrs_cpu_is_active(unsigned int cpu)
{
	return cpu_active(cpu);
}

void nrs_queue_enter(struct request_queue *q)
{
	percpu_ref_get(&q->q_usage_counter);
}

void nrs_queue_leave(struct request_queue *q)
{
	percpu_ref_put(&q->q_usage_counter);
}

void nrs_wait_for_tasks(void)
{
	synchronize_rcu_tasks();
}

struct request *nrs_request_pop(struct list_head *list)
{
	struct request *rq = list_first_entry_or_null(list, struct request, queuelist);

	if (rq)
		list_del_init(&rq->queuelist);
	return rq;
}

void nrs_request_trace(struct request *rq)
{
	trace_block_rq_insert(rq);
}

bool nrs_request_is_in_flush(struct request *rq)
{
	return rq->rq_flags & RQF_FLUSH_SEQ;
}

bool nrs_may_sleep(void)
{
	return task_is_running(current) && !rcu_preempt_depth() && !in_atomic();
}

bool nrs_may_run(struct blk_mq_hw_ctx *hctx, bool nowait)
{
	return nrs_may_sleep() && !irqs_disabled() &&
	       !(nowait && hctx->flags & BLK_MQ_F_BLOCKING);
}

void nrs_request_would_block(struct bio *bio)
{
	bio_wouldblock_error(bio);
}

bool nrs_queue_shares_tags(struct request_queue *q)
{
	return blk_mq_is_shared_tags(q->tag_set->flags);
}
