/* SPDX-License-Identifier: Apache-2.0 */
/* Packets come in, the model judges those that its input selector selects, packets go out. Build it in place of
 * wire_main.c of Netronome's c_packetprocessing, whose libraries it uses. */

#include <nfp.h>
#include <nfp_intrinsic.h>
#include <stdint.h>
#include <types.h>

#include <nfp/cls.h>
#include <nfp/mem_atomic.h>
#include <nfp/mem_bulk.h>
#include <pkt/pkt.h>

#include "ww_model.h"

/* As in config.h of apps/wire, which may define them otherwise. */
#ifndef PKT_NBI_OFFSET
#define PKT_NBI_OFFSET 64
#endif
#ifndef MAC_PREPEND_BYTES
#define MAC_PREPEND_BYTES 8
#endif
#ifndef NBI
#define NBI 0
#endif
#ifndef MAC_TO_PORT
#define MAC_TO_PORT(channel) ((channel) / 4)
#endif
#ifndef PORT_TO_TMQ
#define PORT_TO_TMQ(port) ((port) * 32)
#endif

/* Ports are joined in pairs, 0 and 1, 2 and 3. */
#define WW_OTHER_PORT(port) ((port) ^ 1)

static void ww_forward(void)
{
	__xread struct nbi_meta_catamaran meta;
	__mem40 char *buffer;
	__mem40 uint8_t *frame;
	__gpr struct pkt_ms_info script;
	__gpr uint32_t length, port, outside, class_id;

	for (;;) {
		pkt_nbi_recv(&meta, sizeof(meta));
		buffer = pkt_ctm_ptr40(meta.pkt_info.isl, meta.pkt_info.pnum, 0);
		frame = (__mem40 uint8_t *)buffer + PKT_NBI_OFFSET + MAC_PREPEND_BYTES;
		length = meta.pkt_info.len - MAC_PREPEND_BYTES;
		port = WW_OTHER_PORT(MAC_TO_PORT(meta.port));

		if (ww_select(frame, length)) {
			outside = ww_read_input(frame);
			class_id = ww_infer();
			if (outside)
				class_id = WW_UNKNOWN;
			port = ww_give(frame, class_id, port);
		}

		pkt_mac_egress_cmd_write(buffer, PKT_NBI_OFFSET + MAC_PREPEND_BYTES, 0, 0);
		script = pkt_msd_write(buffer, PKT_NBI_OFFSET + MAC_PREPEND_BYTES - 4);
		pkt_nbi_send(meta.pkt_info.isl, meta.pkt_info.pnum, &script, length + 4, NBI,
			     PORT_TO_TMQ(port), meta.seqr, meta.seq, WW_CTM_SIZE);
	}
}

int main(void)
{
#ifdef WW_EXECUTORS
	__gpr uint32_t place;

	__assign_relative_register(&ww_start, WW_START);
	__assign_relative_register(&ww_end, WW_END);
	__implicit_write(&ww_start);
	__implicit_write(&ww_end);
	place = ww_own_place();
	if (place < WW_EXECUTORS)
		ww_execute(place);
	if (ctx() >= WW_DISPATCHERS)
		ctx_wait(kill);
#endif
	ww_forward();
	return 0;
}
