/** The only place where an amount becomes text. */

const MINOR_DIGITS: Record<string, number> = { EUR: 2, GBP: 2, SEK: 2, ISK: 0 };

export function formatMoney(minor: number, currency: string, locale = "en-IE"): string {
  if (!Number.isInteger(minor)) throw new RangeError(`${minor} is not a whole number of ${currency}'s smallest unit`);
  const digits = MINOR_DIGITS[currency];
  if (digits === undefined) throw new RangeError(`unknown currency ${currency}`);
  return new Intl.NumberFormat(locale, { style: "currency", currency }).format(minor / 10 ** digits);
}
