/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A decision tree in the published style (flow.h): a loop from the root to a leaf that looks each node up in an array map. */
#include "flow.h"

/* A leaf has FEATURES as its feature. */
struct node {
	__s64 threshold;
	__u32 feature;
	__u32 left;
	__u32 right;
	__u32 class_id;
};

#include "values.h"

ARRAY(nodes, struct node, NODES);

__noinline int fill(void)
{
	FILL(nodes, struct node, node_values);
	return 0;
}

static __always_inline __u32 classify(const __s64 *x)
{
	__u32 at = 0;

	for (int level = 0; level <= DEPTH; level++) {
		struct node *node = bpf_map_lookup_elem(&nodes, &at);

		if (!node)
			break;
		if (node->feature >= FEATURES)
			return node->class_id;
		at = x[node->feature] <= node->threshold ? node->left : node->right;
	}
	return 0;
}

SEC("xdp")
int ww_main(struct xdp_md *ctx)
{
	struct ww_scratch *scratch;
	__s64 x[FEATURES];
	int status = extract(ctx, x);
	__u32 class_id;

	if (ww_unlikely(status))
		return unclassified(status);
	class_id = classify(x);
	scratch = traced();
	if (scratch) {
		scratch->score[0] = class_id == 0;
		scratch->score[1] = class_id == 1;
	}
	return classified(class_id);
}
