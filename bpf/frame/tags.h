/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is in front of the network header, in one number. */
#ifndef WW_TAGS_H
#define WW_TAGS_H

#define WW_VLANS 0xffffff /* ids of the tags: of the outermost, and of the one behind it << 12 */
#define WW_VLAN_ID 0xfff
#define WW_INNER_VLAN(id) ((id) << 12)
#define WW_IN_PPPOE (1 << 24)

#endif
