/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* An int8 network in the published style (flow.h): a program for each layer, behind a tail call; a loop over its neurons and one
 * over its inputs, which looks each weight up in an array map. As a tail call keeps no stack, what the layers hand on lies in a map.
 *
 * Section IV-C scales a layer's sums back and quantises them again for the next one. The model does both in one multiplication
 * and shift for each neuron; the last layer only multiplies.
 */
#include "flow.h"

struct input {
	__s64 low;
	__s64 high;
	__s64 zero;
	__s64 multiplier;
	__s64 shift;
};

struct neuron {
	__s64 bias;
	__s64 multiplier;
};

#include "values.h"

/* Normalisation of the inputs (s in the text), weights of all layers, scale and bias of each neuron, shift of each layer. */
ARRAY(inputs, struct input, FEATURES);
ARRAY(weights, __s64, WEIGHTS);
ARRAY(neurons, struct neuron, NEURONS);
ARRAY(shifts, __s64, LAYERS);

/* Features, and what layers give: they read and write by turns. */
struct row {
	__s64 x[FEATURES];
	__s64 y[2][WIDEST];
};
MAP(rows, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct row, 1);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, LAYERS + 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ww_progs SEC(".maps"); /* the loader puts ww_model_1, ww_model_2, ... there */

__noinline int fill(void)
{
	FILL(inputs, struct input, input_values);
	FILL(weights, __s64, weight_values);
	FILL(neurons, struct neuron, neuron_values);
	FILL(shifts, __s64, shift_values);
	return 0;
}

static __always_inline struct row *own_row(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&rows, &zero);
}

static __always_inline __s64 clamp(__s64 value, __s64 low, __s64 high)
{
	return value < low ? low : value > high ? high : value;
}

static __always_inline __s64 round_shift(__s64 value, __s64 shift)
{
	return (value + (1LL << shift >> 1)) >> shift;
}

/* Eq. (1): features to -127..127. */
static __always_inline void quantise(__s64 *q, const __s64 *x)
{
	for (__u32 k = 0; k < FEATURES; k++) {
		__u32 key = k;
		struct input *s = bpf_map_lookup_elem(&inputs, &key);

		if (!s)
			return;
		q[k] = clamp(round_shift((clamp(x[k], s->low, s->high) - s->zero) * s->multiplier, s->shift),
			     -127, 127);
	}
}

/* A layer without its activation: from (inputs of them) to (width). weight, neuron: where its own begin. */
static __always_inline void multiply(__s64 *to, const __s64 *from, __u32 width, __u32 count, __u32 weight,
				     __u32 neuron)
{
	for (__u32 j = 0; j < width; j++) {
		__u32 key = neuron + j;
		struct neuron *own = bpf_map_lookup_elem(&neurons, &key);
		__s64 sum;

		if (!own)
			return;
		sum = own->bias;
#pragma unroll
		for (__u32 k = 0; k < count; k++) {
			__u32 index = weight + j * count + k;
			__s64 *w = bpf_map_lookup_elem(&weights, &index);

			if (!w)
				return;
			sum += from[k] * *w;
		}
		to[j] = sum * own->multiplier;
	}
}

/* ReLU, and Eq. (1) for the next layer. */
static __always_inline void activate(__s64 *y, __u32 width, __u32 layer)
{
	__s64 *shift = bpf_map_lookup_elem(&shifts, &layer);

	if (!shift)
		return;
	for (__u32 j = 0; j < width; j++)
		y[j] = clamp(round_shift(y[j], *shift), 0, 127);
}

SEC("xdp")
int ww_main(struct xdp_md *ctx)
{
	struct row *row = own_row();
	int status;

	if (!row)
		return XDP_PASS;
	status = extract(ctx, row->x);
	if (ww_unlikely(status))
		return unclassified(status);
	bpf_tail_call(ctx, &ww_progs, 1);
	return XDP_PASS;
}

SEC("xdp")
int ww_model_1(struct xdp_md *ctx)
{
	struct row *row = own_row();

	if (!row)
		return XDP_PASS;
	quantise(row->y[0], row->x);
	multiply(row->y[1], row->y[0], WIDTH_1, FEATURES, 0, 0);
	activate(row->y[1], WIDTH_1, 0);
	bpf_tail_call(ctx, &ww_progs, 2);
	return XDP_PASS;
}

SEC("xdp")
int ww_model_2(struct xdp_md *ctx)
{
	struct row *row = own_row();

	if (!row)
		return XDP_PASS;
	multiply(row->y[0], row->y[1], WIDTH_2, WIDTH_1, FEATURES * WIDTH_1, WIDTH_1);
	activate(row->y[0], WIDTH_2, 1);
	bpf_tail_call(ctx, &ww_progs, 3);
	return XDP_PASS;
}

SEC("xdp")
int ww_model_3(struct xdp_md *ctx)
{
	struct row *row = own_row();
	struct ww_scratch *scratch = traced();
	__u32 best = 0;

	if (!row)
		return XDP_PASS;
	multiply(row->y[1], row->y[0], CLASSES, WIDTH_2, WIDTH_1 * (FEATURES + WIDTH_2), WIDTH_1 + WIDTH_2);
	for (__u32 m = 1; m < CLASSES; m++)
		if (row->y[1][m] > row->y[1][best])
			best = m;
	if (scratch)
		for (int m = 0; m < CLASSES; m++)
			scratch->score[m] = row->y[1][m];
	return classified(best);
}
