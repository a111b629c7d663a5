namespace Pontoon.Tides;

public readonly record struct TidePoint(DateTimeOffset Time, int HeightCm);

public readonly record struct CrossingWindow(DateTimeOffset Opens, DateTimeOffset Closes);

/// <summary>When a boat can cross the sill: the times at which the water above it is deep enough for the keel.</summary>
public static class SillWindow
{
    private const int ClearanceCm = 50;

    public static IEnumerable<CrossingWindow> For(int draughtCm, int sillHeightCm, IReadOnlyList<TidePoint> forecast)
    {
        var needed = draughtCm + ClearanceCm + sillHeightCm;
        DateTimeOffset? opens = null;

        foreach (var point in forecast)
        {
            if (point.HeightCm >= needed)
            {
                opens ??= point.Time;
            }
            else if (opens is { } start)
            {
                yield return new CrossingWindow(start, point.Time);
                opens = null;
            }
        }

        if (opens is { } open && forecast.Count > 0)
            yield return new CrossingWindow(open, forecast[^1].Time);
    }
}
