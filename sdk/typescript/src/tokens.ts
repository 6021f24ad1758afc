/** What your backend returns to the page: the `value` and `expires_at` of a scoped token. */
export interface TokenResponse {
  value: string;
  /** Unix seconds. */
  expires_at: number;
}

/**
 * Returns a function for the option `apiKey` that fetches a scoped token from your backend, keeps it, and replaces it a
 * minute before it expires. Concurrent requests share one fetch.
 */
export function cachedToken(fetchToken: () => Promise<TokenResponse>): () => Promise<string> {
  let current: Promise<TokenResponse> | undefined;
  const isFresh = (token: TokenResponse) => token.expires_at - 60 > Date.now() / 1000;
  return async () => {
    const known = await current?.catch(() => undefined);
    if (known !== undefined && isFresh(known)) return known.value;
    if (known !== undefined) current = undefined;
    const pending = (current ??= fetchToken());
    try {
      return (await pending).value;
    } catch (error) {
      if (current === pending) current = undefined;
      throw error;
    }
  };
}
