/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Lustre's header of this name that lustre/ uses. */
#ifndef STAND_IN_OBD_SUPPORT_H
#define STAND_IN_OBD_SUPPORT_H

#include <linux/slab.h>

#define OBD_FREE_PTR(pointer) kfree(pointer)

#endif
