/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a program alone: from features to a class, without packets and flows. */
#include "program.c"

static __noinline __u32 infer(struct ww_scratch *scratch)
{
#if WW_TAIL_CALLS
	abort(); /* which programs of several parts need the kernel for */
#else
	return ww_infer(scratch);
#endif
}

NATIVE_EXPORT void native_infer(const __s64 *features, size_t rows, size_t width, __u32 *classes)
{
	struct ww_scratch *scratch = &ww_cpu[0].scratch;

	for (size_t i = 0; i < rows; i++, features += width) {
		for (size_t k = 0; k < width; k++)
			scratch->feature[k] = features[k];
		classes[i] = infer(scratch);
	}
}
