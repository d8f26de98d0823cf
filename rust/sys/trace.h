/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints. Documentation/tracing.md describes their fields, which are stable. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nrs

#if !defined(NRS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NRS_TRACE_H

#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "events.h"

#ifndef NRS_TRACE_COPY
#define NRS_TRACE_COPY
/* Texts are copied into arrays, so that a reader of events has no pointers to follow. */
static inline void nrs_copy(char *to, size_t size, const struct nrs_text *text)
{
	size_t length = min_t(size_t, text->length, size - 1);

	memcpy(to, text->start, length);
	memset(to + length, 0, size - length);
}
#endif

#define nrs_show_head(high) __print_symbolic(high, { 0, "regular" }, { 1, "high" })

TRACE_EVENT(nrs_enqueue,
	TP_PROTO(const struct nrs_event_enqueue *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, bytes)
		__field(u64, offset)
		__array(char, service, 32)
		__array(char, policy, 16)
		__array(char, jobid, 32)
		__array(char, nid, 64)
		__field(u32, uid)
		__field(u32, gid)
		__field(u32, opcode)
		__field(u16, cpt)
		__field(u8, high)
		__field(u8, queued)
	),
	TP_fast_assign(
		__entry->id = event->id;
		__entry->bytes = event->bytes;
		__entry->offset = event->offset;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->head.service);
		nrs_copy(__entry->policy, sizeof(__entry->policy), &event->head.policy);
		nrs_copy(__entry->jobid, sizeof(__entry->jobid), &event->jobid);
		nrs_copy(__entry->nid, sizeof(__entry->nid), &event->nid);
		__entry->uid = event->uid;
		__entry->gid = event->gid;
		__entry->opcode = event->opcode;
		__entry->cpt = event->head.cpt;
		__entry->high = event->head.high;
		__entry->queued = event->queued;
	),
	TP_printk("id=%llu service=%s head=%s cpt=%u policy=%s uid=%d gid=%d jobid=%s nid=%s "
		"opcode=%u bytes=%llu offset=%llu queued=%u",
		__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
		(int)__entry->uid, (int)__entry->gid, __entry->jobid, __entry->nid, __entry->opcode,
		__entry->bytes, __entry->offset, __entry->queued)
);

TRACE_EVENT(nrs_dispatch,
	TP_PROTO(const struct nrs_event_dispatch *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, bytes)
		__field(u64, waited_ns)
		__array(char, service, 32)
		__array(char, policy, 16)
		__field(u32, slots)
		__field(u32, limit)
		__field(u16, cpt)
		__field(u8, high)
		__field(u8, queued)
		__field(u8, slot)
	),
	TP_fast_assign(
		__entry->id = event->id;
		__entry->bytes = event->bytes;
		__entry->waited_ns = event->waited_ns;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->head.service);
		nrs_copy(__entry->policy, sizeof(__entry->policy), &event->head.policy);
		__entry->slots = event->slots;
		__entry->limit = event->limit;
		__entry->cpt = event->head.cpt;
		__entry->high = event->head.high;
		__entry->queued = event->queued;
		__entry->slot = event->slot;
	),
	TP_printk("id=%llu service=%s head=%s cpt=%u policy=%s bytes=%llu waited_ns=%llu queued=%u "
		"slot=%u slots=%u limit=%u",
		__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
		__entry->bytes, __entry->waited_ns, __entry->queued, __entry->slot, __entry->slots,
		__entry->limit)
);

TRACE_EVENT(nrs_complete,
	TP_PROTO(const struct nrs_event_complete *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, bytes)
		__field(u64, service_ns)
		__array(char, service, 32)
		__field(s32, error)
		__field(u16, cpt)
		__field(u8, high)
	),
	TP_fast_assign(
		__entry->id = event->id;
		__entry->bytes = event->bytes;
		__entry->service_ns = event->service_ns;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->head.service);
		__entry->error = event->error;
		__entry->cpt = event->head.cpt;
		__entry->high = event->head.high;
	),
	TP_printk("id=%llu service=%s head=%s cpt=%u bytes=%llu service_ns=%llu error=%d",
		__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->bytes,
		__entry->service_ns, __entry->error)
);

TRACE_EVENT(nrs_throttle,
	TP_PROTO(const struct nrs_event_throttle *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, until_ns)
		__field(u64, delay_ns)
		__array(char, service, 32)
		__array(char, policy, 16)
		__field(u32, queued)
		__field(u16, cpt)
		__field(u8, high)
	),
	TP_fast_assign(
		__entry->until_ns = event->until_ns;
		__entry->delay_ns = event->delay_ns;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->head.service);
		nrs_copy(__entry->policy, sizeof(__entry->policy), &event->head.policy);
		__entry->queued = event->queued;
		__entry->cpt = event->head.cpt;
		__entry->high = event->head.high;
	),
	TP_printk("service=%s head=%s cpt=%u policy=%s until_ns=%llu delay_ns=%llu queued=%u",
		__entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
		__entry->until_ns, __entry->delay_ns, __entry->queued)
);

TRACE_EVENT(nrs_policy,
	TP_PROTO(const struct nrs_event_policy *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__array(char, service, 32)
		__array(char, old, 16)
		__array(char, new, 16)
		__array(char, argument, 64)
		__field(u8, high)
	),
	TP_fast_assign(
		nrs_copy(__entry->service, sizeof(__entry->service), &event->service);
		nrs_copy(__entry->old, sizeof(__entry->old), &event->old);
		nrs_copy(__entry->new, sizeof(__entry->new), &event->new_);
		nrs_copy(__entry->argument, sizeof(__entry->argument), &event->argument);
		__entry->high = event->high;
	),
	TP_printk("service=%s head=%s old=%s new=%s argument=%s",
		__entry->service, nrs_show_head(__entry->high), __entry->old, __entry->new,
		__entry->argument)
);

TRACE_EVENT(nrs_shares,
	TP_PROTO(const struct nrs_event_shares *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, entities)
		__field(u64, generation)
		__field(u64, delta_ms)
		__field(u64, took_ns)
		__array(char, service, 32)
		__field(u8, high)
	),
	TP_fast_assign(
		__entry->entities = event->entities;
		__entry->generation = event->generation;
		__entry->delta_ms = event->delta_ms;
		__entry->took_ns = event->took_ns;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->service);
		__entry->high = event->high;
	),
	TP_printk("service=%s head=%s entities=%llu generation=%llu delta_ms=%llu took_ns=%llu",
		__entry->service, nrs_show_head(__entry->high), __entry->entities, __entry->generation,
		__entry->delta_ms, __entry->took_ns)
);

TRACE_EVENT(nrs_factors,
	TP_PROTO(const struct nrs_event_factors *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u64, instance)
		__field(u64, factors)
		__field(u64, lease_ms)
		__array(char, service, 32)
		__field(u32, step)
	),
	TP_fast_assign(
		__entry->instance = event->instance;
		__entry->factors = event->factors;
		__entry->lease_ms = event->lease_ms;
		nrs_copy(__entry->service, sizeof(__entry->service), &event->service);
		__entry->step = event->step;
	),
	TP_printk("service=%s instance=%016llx factors=%llu lease_ms=%llu step=%u",
		__entry->service, __entry->instance, __entry->factors, __entry->lease_ms, __entry->step)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
