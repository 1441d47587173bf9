/* One pass of triad, after the rules of McCalpin's STREAM: arrays of at least four
 * caches, bytes counted without write-allocate, one thread. Not the STREAM benchmark
 * itself: our own short text of its rules, called in turn with our own arms.
 */
void triad(float *restrict a, const float *restrict b, const float *restrict c, long n)
{
    for (long i = 0; i < n; i++)
        a[i] = b[i] + 3.0f * c[i];
}
