/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The header of GTP-U, the tunnels of LTE and 5G between base station and core: 3GPP TS 29.281. Included where packets are parsed by what
 * is inside, and where they are taken out.
 */
#ifndef WW_GTP_H
#define WW_GTP_H

#include "frame/link.h"

#define WW_PORT_GTP_U 2152
#define WW_MAX_GTP_EXTENSIONS 4

struct ww_gtp {
	__u8 flags; /* version (3 bits) 1, PT 1, spare, E, S, PN */
	__u8 message;
	__be16 length;
	__be32 teid;
};

#define WW_GTP_PDU_SESSION 0x85
#define WW_GTP_REQUIRED 0x80 /* of an extension's type: who ends the tunnel has to understand it */

/* What is found on the way over the extension headers. */
struct ww_gtp_extensions {
	__u32 session; /* offset in the frame of the PDU session container; 0: none */
	__u32 unknown; /* 1: there is one to be understood, and it is not known here */
};

/* What ww_find_network returns of a GTP-U header: its TEID; or, where features read the PDU session container (3GPP TS 38.415), the header's
 * offset in the frame, from which the TEID is read again, and above it WW_GTP_SESSION and the container's first two octets. 0: none. */
#define WW_GTP_OFFSET 0x7fffU
#define WW_GTP_SESSION (1U << 15)
#define WW_GTP_TYPE(found) ((found) >> 20 & 15)
#define WW_GTP_QFI(found) ((found) >> 24 & 63)

/* Opens the header at the cursor, which stays at what is inside. Returns 0, or WW_MALFORMED_TUNNEL; *type: EtherType inside, unchanged: no IP.
 * room: bytes from the header on, in the packet around it. start: of the frame. */
static __always_inline int ww_open_gtp(struct ww_cursor *cursor, __be16 *type, void *start, __u32 room,
				       __u32 *found, struct ww_gtp_extensions *extensions)
{
	struct ww_gtp *gtp = cursor->at;
	__u8 *inner;

	if ((void *)(gtp + 1) > cursor->end || room < sizeof(*gtp))
		return WW_MALFORMED_TUNNEL;
	if (gtp->flags >> 4 != 3 || gtp->message != 255)
		return 0;
	*found = WW_PDU_SESSION ? (cursor->at - start) & WW_GTP_OFFSET : bpf_ntohl(gtp->teid);
	cursor->at = gtp + 1;
	if (gtp->flags & 7) {
		__u8 *option = cursor->at, extension;

		if ((void *)(option + 4) > cursor->end)
			return WW_MALFORMED_TUNNEL;
		extension = gtp->flags & 4 ? option[3] : 0;
		cursor->at = option + 4;
		for (int i = 0; i < WW_MAX_GTP_EXTENSIONS && extension; i++) {
			__u8 *header = cursor->at, *behind;
			__u32 size;

			if ((void *)(header + 4) > cursor->end)
				return WW_MALFORMED_TUNNEL;
			size = header[0] * 4;
			if (!size)
				return WW_MALFORMED_TUNNEL;
			behind = header + size;
			/* Otherwise the compiler compares the place of the last byte, of which Linux 6.1 does not know that it is not before the
			 * header. */
			ww_hide(behind);
			if ((void *)behind > cursor->end)
				return WW_MALFORMED_TUNNEL;
			if (extension == WW_GTP_PDU_SESSION)
				extensions->session = (void *)header - start;
			else if (extension & WW_GTP_REQUIRED)
				extensions->unknown = 1;
			if (WW_PDU_SESSION && extension == WW_GTP_PDU_SESSION)
				*found = (*found & WW_GTP_OFFSET) | WW_GTP_SESSION | (__u32)header[1] << 16 |
					 (__u32)header[2] << 24;
			/* The next extension's type is the last byte of this one. */
			extension = behind[-1];
			cursor->at = behind;
		}
		if (extension)
			return WW_MALFORMED_TUNNEL;
	}
	inner = cursor->at;
	if ((void *)(inner + 1) > cursor->end || (__u32)((void *)inner - (void *)gtp) >= room)
		return WW_MALFORMED_TUNNEL;
	if (*inner >> 4 == 4)
		*type = bpf_htons(ETH_P_IP);
	else if (*inner >> 4 == 6)
		*type = bpf_htons(ETH_P_IPV6);
	return 0;
}

#endif
