using System.Security.Cryptography;
using System.Text;

namespace Pontoon.Payments;

/// <summary>Checks that a callback was signed by the payment provider.</summary>
public sealed class CallbackVerifier
{
    private readonly IReadOnlyList<byte[]> _secrets;

    /// <summary>During a rotation there are two secrets; either may have signed.</summary>
    public CallbackVerifier(IEnumerable<string> secrets)
        => _secrets = secrets.Select(Encoding.UTF8.GetBytes).ToList();

    public bool IsGenuine(ReadOnlySpan<byte> body, string signatureHex)
    {
        byte[] given;
        try { given = Convert.FromHexString(signatureHex); }
        catch (FormatException) { return false; }

        foreach (var secret in _secrets)
        {
            if (CryptographicOperations.FixedTimeEquals(HMACSHA256.HashData(secret, body), given))
                return true;
        }
        return false;
    }
}
