/* SPDX-License-Identifier: GPL-2.0-only */
/* What of I/O schedulers only C can reach: macros and inline functions, one wrapper each. */
#ifndef NRS_ELEVATOR_SHIM_H
#define NRS_ELEVATOR_SHIM_H

#include <linux/types.h>

struct bio;
struct device;
struct list_head;
struct request;
struct request_queue;
struct blk_mq_hw_ctx;

/* The disk of @q, with a reference to it; null if @q has none. */
struct device *nrs_queue_disk(struct request_queue *q);

/* Whether @q is frozen, or is about to be: nothing that it holds may be withheld. */
bool nrs_queue_is_dying(struct request_queue *q);

/*
 * Enables or disables writeback throttling of @q, which is frozen and has a disk, unless queue/wbt_lat_usec was written.
 * May sleep.
 */
void nrs_queue_throttle_writeback(struct request_queue *q, bool throttle);

/* The CPU on which @rq was made. */
unsigned int nrs_request_cpu(struct request *rq);

/* Whether @cpu takes part in scheduling; its hardware queue may be about to go otherwise. */
bool nrs_cpu_is_active(unsigned int cpu);

/* Keeps @q, which the caller's request keeps so far, and its scheduler from being frozen until it is left. */
void nrs_queue_enter(struct request_queue *q);
void nrs_queue_leave(struct request_queue *q);

/* Waits until each task that runs a function now has left it, even if it was preempted there, unless it sleeps. Sleeps. */
void nrs_wait_for_tasks(void);

/* Takes the first request from @list; null if there is none. */
struct request *nrs_request_pop(struct list_head *list);

/* Tells the tracepoint that @rq was inserted. */
void nrs_request_trace(struct request *rq);

/*
 * Whether the running task may run @hctx itself: it is not about to sleep, interrupts are on, and the driver does not sleep
 * for a task that must not, because of @nowait.
 */
bool nrs_may_run(struct blk_mq_hw_ctx *hctx, bool nowait);

/* Whether the running task is not about to sleep: it may wait for memory. */
bool nrs_may_sleep(void);

/* Ends @bio, which would have to wait for a request. */
void nrs_request_would_block(struct bio *bio);

/* Whether all hardware queues of @q share one set of tags. */
bool nrs_queue_shares_tags(struct request_queue *q);

#endif
