-- How many documents each tenant has, and the index's version when one of them was last changed: what one tenant stores
-- changes neither the answers of another nor what is known of them.

ALTER TABLE tenants ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN documents INTEGER NOT NULL DEFAULT 0;
UPDATE tenants SET documents = (SELECT count(*) FROM documents AS d WHERE d.tenant = tenants.key);

DROP TRIGGER documents_added;
CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    UPDATE totals SET version = version + 1, documents = documents + 1, pending = pending + (NEW.status = 'pending');
    UPDATE tenants SET version = (SELECT version FROM totals), documents = documents + 1 WHERE key = NEW.tenant;
END;
DROP TRIGGER documents_changed;
CREATE TRIGGER documents_changed AFTER UPDATE ON documents BEGIN
    UPDATE totals
    SET version = version + 1, pending = pending + (NEW.status = 'pending') - (OLD.status = 'pending');
    UPDATE tenants
    SET version = (SELECT version FROM totals), documents = documents + (key = NEW.tenant) - (key = OLD.tenant)
    WHERE key IN (OLD.tenant, NEW.tenant);
END;
DROP TRIGGER documents_removed;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
    UPDATE totals SET version = version + 1, documents = documents - 1, pending = pending - (OLD.status = 'pending');
    UPDATE tenants SET version = (SELECT version FROM totals), documents = documents - 1 WHERE key = OLD.tenant;
END;
