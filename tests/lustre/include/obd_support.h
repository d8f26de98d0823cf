/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Lustre's header of this name that lustre/ uses. */
#ifndef STAND_IN_OBD_SUPPORT_H
#define STAND_IN_OBD_SUPPORT_H

#include <linux/slab.h>

/* Evaluates its argument several times, as Lustre's macro does. */
#define OBD_FREE_PTR(pointer)						\
	do {								\
		if (pointer) {						\
			memset(pointer, 0x5a, sizeof(*(pointer)));	\
			kfree(pointer);					\
			(pointer) = (void *)0x5a5a5a5a5a5a5a5a;		\
		}							\
	} while (0)

#endif
