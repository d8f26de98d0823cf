/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout of the kernel's private structures for which the I/O scheduler was compiled. */
#ifndef NRS_LAYOUT_H
#define NRS_LAYOUT_H

#include <linux/types.h>

/* Size of a structure, or offset of @member in a structure, bytes. */
struct nrs_layout {
	const char *structure;
	const char *member;	/* NULL for the size */
	size_t bytes;
	const char *prototype;	/* of the function that @member points to, or NULL */
};

/* Returns the sizes and offsets that the I/O scheduler depends on; stores the number in @len. */
const struct nrs_layout *nrs_layout_rows(size_t *len);

/*
 * Returns true if the kernel has no BTF and was built from the tree that the module was built
 * against.
 */
bool nrs_layout_is_given(void);

#endif
