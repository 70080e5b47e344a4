/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a map is declared. Each has a row in the agent's table of maps (crates/wirewised/src/abi/maps.rs), by which the loader sets the sizes
 * that depend on the machine, and makes only those that a program needs.
 */
#ifndef WW_MAP_H
#define WW_MAP_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define WW_MAP(name, map_type, key_type, value_type, entries, flags) \
	struct {                                                     \
		__uint(type, map_type);                              \
		__uint(max_entries, entries);                        \
		__uint(map_flags, flags);                            \
		__type(key, key_type);                               \
		__type(value, value_type);                           \
	} name SEC(".maps")

#endif
