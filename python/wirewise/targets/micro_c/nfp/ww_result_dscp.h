/* SPDX-License-Identifier: Apache-2.0 */
/* Output selector: the class becomes the DSCP, and the header's checksum is corrected (RFC 1624). */

/* The port by which a judged frame leaves. port: the one by which all others do. */
static uint32_t ww_give(__mem40 uint8_t *frame, uint32_t class_id, uint32_t port)
{
	__xwrite uint32_t out[1];
	__gpr uint32_t service, sum;

	service = (ww_flow[1] & 0xff03) | class_id << 2;
	sum = (~ww_flow[2] >> 16) + (~ww_flow[1] & 0xffff) + service;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	out[0] = (ww_flow[1] & 0xffff0000) | service;
	mem_write32(out, frame + 12, sizeof(out));
	out[0] = ~sum << 16 | (ww_flow[2] & 0xffff);
	mem_write32(out, frame + 24, sizeof(out));
	return port;
}
