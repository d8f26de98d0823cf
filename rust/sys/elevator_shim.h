/* SPDX-License-Identifier: GPL-2.0-only */
/* Wrappers of macros and inline functions for I/O schedulers. */
#ifndef NRS_ELEVATOR_SHIM_H
#define NRS_ELEVATOR_SHIM_H

#include <linux/types.h>

struct bio;
struct device;
struct list_head;
struct request;
struct request_queue;
struct blk_mq_hw_ctx;

/* Returns the disk of @q with a reference, or NULL if @q has none. */
struct device *nrs_queue_disk(struct request_queue *q);

/* Returns true if @q is frozen or about to be: no request may be queued. */
bool nrs_queue_is_dying(struct request_queue *q);

/*
 * Enables or disables writeback throttling of @q, unless queue/wbt_lat_usec was written. @q is
 * frozen and has a disk. May sleep.
 */
void nrs_queue_throttle_writeback(struct request_queue *q, bool throttle);

/* Returns the CPU on which @rq was allocated. */
unsigned int nrs_request_cpu(struct request *rq);

/* Returns true if @cpu takes part in scheduling; if not, it may be about to go offline. */
bool nrs_cpu_is_active(unsigned int cpu);

/*
 * Keeps @q and its scheduler from being frozen until nrs_queue_leave(); a request of the caller
 * keeps them so far.
 */
void nrs_queue_enter(struct request_queue *q);
void nrs_queue_leave(struct request_queue *q);

/*
 * Waits until each task has left the function it runs, even if preempted there, or sleeps
 * voluntarily. May sleep.
 */
void nrs_wait_for_tasks(void);

/* Removes and returns the first request of @list, or NULL if @list is empty. */
struct request *nrs_request_pop(struct list_head *list);

/* Emits the tracepoint for an inserted request. */
void nrs_request_trace(struct request *rq);

/*
 * Returns true if the running task may run @hctx itself: it is not about to sleep, interrupts are
 * on, and the driver does not sleep for a task that must not (@nowait).
 */
bool nrs_may_run(struct blk_mq_hw_ctx *hctx, bool nowait);

/* Returns true if flushes of the disk wait for @rq. */
bool nrs_request_is_in_flush(struct request *rq);

/*
 * Returns true if @rq is a piece that the block layer cut off a bio for the limits of a disk; the
 * last piece is what remains of that bio.
 */
bool nrs_request_is_piece(struct request *rq);

/*
 * Returns true if the running task is not about to sleep and holds no lock of RCU: it may wait for
 * memory. Request-based device-mapper inserts its clones under RCU.
 */
bool nrs_may_sleep(void);

/* Lets @bio wait for a request, without a task that polls for its end. */
void nrs_bio_detach(struct bio *bio);

/*
 * Returns true if io.latency or io.cost control @q: they count a bio at each submission, and may
 * block the task that submits it.
 */
bool nrs_queue_is_controlled(struct request_queue *q);

/*
 * Returns true if the bios of @rq may be submitted once more in its place. A clone of request-based
 * device-mapper has an owner that waits for the request itself.
 */
bool nrs_request_has_bios_only(struct request *rq);

/*
 * Frees @rq, which was never started and which the caller owns, and returns its bios, linked
 * through bi_next. They may wait, as after nrs_bio_detach().
 */
struct bio *nrs_request_take_bios(struct request *rq);

/*
 * Returns the number of segments of a request of the bios @first to @last, which have @segments (0:
 * not counted yet), and @next. Returns 0 if @next does not continue them, if the request would
 * exceed a limit of the queue, or if one of them is in a list.
 */
unsigned int nrs_bio_join(struct bio *first, struct bio *last, struct bio *next,
			  unsigned int segments);

/*
 * Submits the list @bios, which were submitted before, once more; those that continue each other
 * become one request, with one charge. May sleep.
 */
void nrs_bios_submit(struct bio *bios);

/* Returns true if all hardware queues of @q share one set of tags. */
bool nrs_queue_shares_tags(struct request_queue *q);

/*
 * Returns true while the number of hardware queues of @q changes, and sometimes at other times: the
 * block layer then holds a mutex, whose functions are macros in real-time kernels.
 */
bool nrs_queue_may_regroup(struct request_queue *q);

#endif
