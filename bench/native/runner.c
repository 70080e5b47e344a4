/* SPDX-License-Identifier: Apache-2.0 */
/* Runs packets through a program. Compiled apart from it, so that it is called for each packet as it is in the other planes. */
#include <linux/bpf.h>

#include "native.h"

int ww_main(struct xdp_md *context);

void native_run(const struct native_packet *packets, size_t count, __u32 *codes)
{
	for (size_t i = 0; i < count; i++) {
		struct xdp_md context = {
			.data = packets[i].data,
			.data_end = packets[i].end,
			.data_meta = packets[i].meta,
		};

		codes[i] = ww_main(&context);
	}
}
