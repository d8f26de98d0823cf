/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: the rows of events.h, and their printed line. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nrs

#if !defined(NRS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NRS_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "events.h"

#ifndef NRS_EVENT
#define NRS_TEXT(name, size) __array(char, name, size)
#define NRS_ASSIGN(type, name) __entry->name = event->name;
#define NRS_ASSIGN_TEXT(name, size) memcpy(__entry->name, event->name, size);
#define NRS_EVENT(name, line, args...) \
	TRACE_EVENT(nrs_##name, \
		TP_PROTO(const struct nrs_event_##name *event), \
		TP_ARGS(event), \
		TP_STRUCT__entry(nrs_fields_##name(__field, NRS_TEXT)), \
		TP_fast_assign(nrs_fields_##name(NRS_ASSIGN, NRS_ASSIGN_TEXT)), \
		TP_printk(line, args) \
	)
#endif

#define nrs_show_head(high) __print_symbolic(high, { 0, "regular" }, { 1, "high" })

NRS_EVENT(enqueue, "id=%llu service=%s head=%s cpt=%u policy=%s uid=%d gid=%d jobid=%s nid=%s "
	"opcode=%u bytes=%llu offset=%llu queued=%u",
	__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
	(int)__entry->uid, (int)__entry->gid, __entry->jobid, __entry->nid, __entry->opcode,
	__entry->bytes, __entry->offset, __entry->queued);

NRS_EVENT(dispatch, "id=%llu service=%s head=%s cpt=%u policy=%s bytes=%llu waited_ns=%llu "
	"queued=%u slot=%u slots=%u limit=%u",
	__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
	__entry->bytes, __entry->waited_ns, __entry->queued, __entry->slot, __entry->slots,
	__entry->limit);

NRS_EVENT(complete, "id=%llu service=%s head=%s cpt=%u bytes=%llu service_ns=%llu error=%d",
	__entry->id, __entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->bytes,
	__entry->service_ns, __entry->error);

NRS_EVENT(throttle, "service=%s head=%s cpt=%u policy=%s until_ns=%llu delay_ns=%llu queued=%u",
	__entry->service, nrs_show_head(__entry->high), __entry->cpt, __entry->policy,
	__entry->until_ns, __entry->delay_ns, __entry->queued);

NRS_EVENT(policy, "service=%s head=%s old=%s new=%s argument=%s",
	__entry->service, nrs_show_head(__entry->high), __entry->old, __entry->new,
	__entry->argument);

NRS_EVENT(shares, "service=%s head=%s entities=%llu generation=%llu delta_ms=%llu took_ns=%llu",
	__entry->service, nrs_show_head(__entry->high), __entry->entities, __entry->generation,
	__entry->delta_ms, __entry->took_ns);

NRS_EVENT(factors, "service=%s instance=%016llx factors=%llu lease_ms=%llu step=%u",
	__entry->service, __entry->instance, __entry->factors, __entry->lease_ms, __entry->step);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
