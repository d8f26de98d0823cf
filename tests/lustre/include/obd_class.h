/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Lustre's header of this name that lustre/ uses. */
#ifndef STAND_IN_OBD_CLASS_H
#define STAND_IN_OBD_CLASS_H

#include "lustre_net.h"

static inline u64 ostid_id(const struct ost_id *id)
{
	return id->id;
}

#endif
